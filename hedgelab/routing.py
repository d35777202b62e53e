"""Training an offline router and saying how well it routes: on the same kind of prompts, on others, on new domains.

The label of a prompt is the drafter that commits the most tokens per round on its texts: the fewest expected rounds of
each drafter alone, exact over coins (`oracles.expected_fixed_rounds`), ties to the first.

Routes of a text always come from a router that did not see its prompt, nor another turn of its conversation: from
another trace (`evaluate`), or from the rest of the same trace (`validate`: folds of prompts, or a domain left out).
Intervals are over the evaluated prompts; that another training set would have made another router is not in them.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgelab import oracles
from hedgelab.comparison import POOLED, REPLICATES, RESAMPLES, Advance, Comparison, cell, compare
from hedgelab.contract import Learner
from hedgelab.feedback import draft_length
from hedgelab.matrix import roles_of
from hedgelab.regret import Interval, bootstrap_counts, ratio_interval
from hedgelab.router import (
    FORMAT_VERSION,
    About,
    Router,
    RouterError,
    arrays_hash,
    features,
    grams_of,
    prompt_hashes,
)
from hedgelab.sheets import Sheet
from hedgelab.trace import Trace

__all__ = ["BY", "Evaluation", "best_drafters", "evaluate", "train", "validate"]

BY = ("prompt", "domain")
FOLDS = 5
PENALTY = 10.0  # rows have norm 1, so C = 1 would leave little but the classes' frequencies
ROUTER, DEFAULT = "router", "best on training"


def best_drafters(trace: Trace, k: int | None = None) -> NDArray[np.int64]:
    """Return (S,) the index of the best drafter of each text's prompt, all texts of the prompt taken together.

    >>> trace = Trace.from_arrays(token=[1, 2, 3], alpha=[[0, 1], [1, 0], [1, 0]], gamma=[[0, 1], [1, 0], [1, 0]],
    ...                           offsets=[0, 1, 3], domains=["a", "b"], drafters=["x", "y"], k=1)
    >>> best_drafters(trace.select([1]))  # one prompt (here an empty one), one round of x
    array([0])
    """
    return _best_of(trace, oracles.expected_fixed_rounds(trace, k=k).rounds)


def _best_of(trace: Trace, rounds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return (S,) the drafter of fewest rounds (S, N) on each text's prompt."""
    _, prompt = np.unique(trace.column("prompt_sha256"), axis=0, return_inverse=True)
    sums = np.zeros((int(prompt.max()) + 1, len(trace.drafters)))
    np.add.at(sums, prompt, rounds)
    return sums.argmin(axis=1)[prompt]


def _regression() -> Callable[..., Any]:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise RouterError("training a router needs the package scikit-learn: pip install -e '.[router]'") from error
    return LogisticRegression


def train(trace: Trace, k: int | None = None, *, penalty: float = PENALTY) -> Router:
    """Return a router trained on the prompts of a trace, one example a prompt.

    k : draft length of the labels, default the trace's. penalty : C of scikit-learn's LogisticRegression, above 0
    RouterError without scikit-learn, without prompts, or where no token tells two prompts from the others.
    """
    k = draft_length(trace, k)
    if not isinstance(penalty, int | float) or isinstance(penalty, bool) or not 0 < penalty <= 1e9:
        raise RouterError(f"penalty must lie in (0, 1e9], got {penalty!r}")
    regression = _regression()
    hashes = prompt_hashes(trace)
    fixed = oracles.expected_fixed_rounds(trace, k=k)
    labels = _best_of(trace, fixed.rounds)
    trained_on, first = np.unique(hashes, axis=0, return_index=True)
    texts = [grams_of(trace.prompt_tokens(int(s)), trace.manifest.vocabulary) for s in first]
    n = len(texts)
    grams, counts = np.unique(np.concatenate(texts), return_counts=True)
    telling = (counts >= 2) & (counts < n)
    grams = grams[telling]
    scale = np.log((1 + n) / (1 + counts[telling])).astype(np.float32)
    if not len(grams):
        raise RouterError(f"no token is shared by at least two of the {n} training prompts but not by all of them")
    classes, targets = np.unique(labels[first], return_inverse=True)
    weights, bias = np.zeros((len(classes), len(grams))), np.zeros(len(classes))
    if len(classes) > 1:
        model = regression(C=penalty, max_iter=10_000)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a fit that did not converge is no fit
            model.fit(_matrix([features(text, grams, scale) for text in texts], len(grams)), targets)
        rows = len(model.coef_)  # of two classes one row: the score of the second against 0
        weights[len(classes) - rows :], bias[len(classes) - rows :] = model.coef_, model.intercept_
    arrays: dict[str, NDArray[Any]] = {
        "grams": grams,
        "scale": scale,
        "weights": weights.astype(np.float32),
        "bias": bias.astype(np.float32),
        "trained_on": np.ascontiguousarray(trained_on),
    }
    about = About(
        format_version=FORMAT_VERSION,
        drafters=trace.drafters,
        classes=tuple(trace.drafters[i] for i in classes),
        default=trace.drafters[fixed.best],
        vocabulary=trace.manifest.vocabulary,
        tokenizer_sha256=trace.manifest.tokenizer_sha256,
        k=k,
        penalty=float(penalty),
        trace=trace.manifest.name,
        trace_sha256=trace.sha256,
        arrays_sha256=arrays_hash(arrays),
    )
    return Router(about, **arrays)


def _matrix(rows: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]], width: int) -> Any:
    from scipy.sparse import csr_matrix  # scikit-learn brings it

    ends = np.cumsum([0, *(len(index) for index, _ in rows)])
    index, x = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return csr_matrix((x, index, ends), shape=(len(rows), width))


@dataclass(frozen=True)
class Evaluation:
    """How a router did on the S texts of a trace, see `evaluate` and `validate`.

    how : where the routes come from. route, best : (S,) index of the drafter sent to, and of each prompt's best
    default : (S,) the drafter that was best over all training texts: what needs no router
    comparison : both as policies beside learners and oracles, who choose among the same drafters
    """

    how: str
    route: NDArray[np.int64]
    best: NDArray[np.int64]
    default: NDArray[np.int64]
    comparison: Comparison

    @property
    def trace(self) -> Trace:
        """The trace evaluated on, with the drafters that the router chooses among."""
        return self.comparison.trace

    def foreign(self) -> NDArray[np.bool_]:
        """Return (S,) whether a text was sent to the specialist of another domain."""
        homes = np.array([role.home for role in roles_of(self.trace.manifest.drafters)])[self.route]
        return (homes != "") & (homes != self.trace.domains)

    def shares(self) -> dict[str, dict[str, Interval]]:
        """Return {domain or "all domains": shares of texts}, with 95% intervals over prompts (bootstrap).

        accuracy : sent to the prompt's best drafter. misrouted : not so. foreign : sent to another domain's specialist
        default_accuracy : of sending every text to the drafter that was best over the training texts
        """
        right, default = self.route == self.best, self.default == self.best
        values = {"accuracy": right, "misrouted": ~right, "foreign": self.foreign(), "default_accuracy": default}
        table: dict[str, dict[str, Interval]] = {}
        for domain in (*self.comparison.domains, POOLED):
            here = np.full(len(right), True) if domain == POOLED else self.trace.domains == domain
            strata = self.trace.home_domains[here] if domain == POOLED else self.trace.domains[here]
            clusters = self.trace.conversations[here]
            counts = bootstrap_counts(clusters, strata=strata, resamples=RESAMPLES, seed=0)
            single = min(len(set(clusters[strata == name])) for name in np.unique(strata)) < 2
            table[domain] = {}
            for name, value in values.items():
                interval = ratio_interval(value[here], np.ones(int(here.sum())), counts)
                table[domain][name] = Interval(interval.estimate, math.nan, math.nan) if single else interval
        return table

    def differences(self) -> dict[str, Interval]:
        """Return {policy: MAT of the router minus MAT of the policy}, paired, with 95% intervals over prompts."""
        others = [policy.name for policy in self.comparison.policies if policy.name != ROUTER]
        return {name: self.comparison.difference(ROUTER, name) for name in others}

    def sheets(self) -> list[Sheet]:
        """Return the shares, and MAT of all policies, as tables."""
        names = ("accuracy", "misrouted", "foreign", "default_accuracy")
        texts = [str(int((self.trace.domains == domain).sum())) for domain in self.comparison.domains]
        shares = [
            [domain, count, *(cell(numbers[name], 2) for name in names)]
            for (domain, numbers), count in zip(self.shares().items(), [*texts, str(len(self.route))], strict=True)
        ]
        header = ["domain", "texts", "sent to the best", "misrouted", "to another domain's specialist"]
        pooled, differences = self.comparison.summary()[POOLED], self.differences()
        mats = [
            [policy.name, cell(pooled[policy.name]["mat"]), cell(differences[policy.name]) if n else ""]
            for policy in self.comparison.policies
            for n in [policy.name != ROUTER]
        ]
        return [
            Sheet(f"Routes, {self.how}: shares of texts", [*header, f"of always {DEFAULT}: to the best"], shares),
            Sheet(f"MAT (tokens / rounds), {POOLED}", ["policy", "MAT", "router minus it, paired"], mats),
        ]

    def document(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold; an interval that nobody knows is null."""

        def plain(interval: Interval) -> dict[str, float | None]:
            return {key: None if math.isnan(value) else value for key, value in interval._asdict().items()}

        return {
            "routes": self.how,
            "drafters": list(self.trace.drafters),
            "shares": {
                domain: {name: plain(interval) for name, interval in row.items()}
                for domain, row in self.shares().items()
            },
            "router_minus": {name: plain(interval) for name, interval in self.differences().items()},
            **self.comparison.document(),
        }


def _evaluation(
    trace: Trace,
    how: str,
    route: NDArray[np.int64],
    default: NDArray[np.int64],
    k: int | None,
    learners: Sequence[Learner | str],
    replicates: int,
    seed: int,
    advance: Advance,
) -> Evaluation:
    comparison = compare(
        trace,
        learners,
        k=k,
        replicates=replicates,
        seed=seed,
        routes={ROUTER: route, DEFAULT: default},
        advance=advance,
    )
    return Evaluation(how, route, best_drafters(trace, k), default, comparison)


def evaluate(
    router: Router,
    trace: Trace,
    *,
    k: int | None = None,
    include_seen: bool = False,
    learners: Sequence[Learner | str] = ("normalhedge",),
    replicates: int = REPLICATES,
    seed: int = 0,
    advance: Advance = lambda _: None,
) -> Evaluation:
    """Return how a router does on a trace; everyone chooses among the router's drafters.

    k : draft length, default the router's own. RouterError for a trace that does not fit, and for one with prompts that
    the router was trained on unless `include_seen`.
    """
    router.fits(trace)
    if not include_seen:
        router.refuse_seen(trace)
    own = trace if set(trace.drafters) == set(router.about.drafters) else trace.among(router.about.drafters)
    default = np.full(own.sequences, own.drafters.index(router.about.default))
    seen = int(router.seen(trace).sum())
    how = f"trained on {router.about.trace}" + (f", {seen} of {trace.sequences} texts seen in training" * bool(seen))
    k = router.about.k if k is None else k
    return _evaluation(own, how, router.route(own), default, k, learners, replicates, seed, advance)


def groups_of(trace: Trace) -> NDArray[np.str_]:
    """Return (S,) a label of what must not be split: conversations, joined where two of them share a prompt."""
    names, talk = np.unique(trace.conversations, return_inverse=True)
    _, prompt = np.unique(trace.column("prompt_sha256"), axis=0, return_inverse=True)
    label = talk
    while True:  # the least label spreads over prompts, then over conversations, until nothing changes
        new = _least(_least(label, prompt), talk)
        if np.array_equal(new, label):
            return names[label]
        label = new


def _least(label: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (S,) the least label of each text's group."""
    least = np.full(int(group.max()) + 1, len(group))
    np.minimum.at(least, group, label)
    return least[group]


def folds_of(trace: Trace, by: str, folds: int, seed: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Return (training, test) masks (S,) of each fold: every text is tested once, apart from its own group.

    by prompt: the groups of each domain, in the order of their hashes with the seed, are dealt out in turn. by domain :
    one domain each; groups with texts of it are not trained on.
    """
    groups, homes = groups_of(trace), trace.home_domains
    if by == "domain":
        names = [name for name in trace.manifest.domains if (trace.domains == name).any()]
        tests = [trace.domains == name for name in names]
    else:
        home: dict[str, str] = {}
        for group, domain in zip(groups.tolist(), homes.tolist(), strict=True):
            home.setdefault(group, domain)
        ordered = sorted(home, key=lambda name: (home[name], hashlib.sha256(f"{seed} {name}".encode()).digest()))
        turn = {group: i % folds for i, group in enumerate(ordered)}
        place = np.array([turn[group] for group in groups.tolist()])
        tests = [place == fold for fold in range(folds) if (place == fold).any()]
    return [(~np.isin(groups, groups[test]), test) for test in tests]


def validate(
    trace: Trace,
    *,
    by: str = "prompt",
    k: int | None = None,
    folds: int = FOLDS,
    penalty: float = PENALTY,
    learners: Sequence[Learner | str] = ("normalhedge",),
    replicates: int = REPLICATES,
    seed: int = 0,
    advance: Advance = lambda _: None,
) -> Evaluation:
    """Return how routers do on the texts of a trace that they were not trained on: several trainings, one trace.

    by : "prompt", cross-validation in `folds` over prompts (and conversations), each domain in every fold as far as its
    prompts go round; "domain", each domain by a router trained on the others. ValueError for folds below 2 or another
    `by`, RouterError where a fold has nothing to train on, and as in `train`.
    """
    if by not in BY:
        raise ValueError(f"by must be one of {', '.join(BY)}, got {by!r}")
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise ValueError(f"folds must be a whole number of at least 2, got {folds!r}")
    prompt_hashes(trace)
    route, default = np.full((2, trace.sequences), -1)
    split = folds_of(trace, by, folds, seed)
    for training, test in split:
        if not training.any():
            raise RouterError(f"by {by}: nothing is left to train on when {int(test.sum())} texts are tested")
        router = train(trace.select(training), k, penalty=penalty)
        route[test] = router.route(trace.select(test))
        default[test] = trace.drafters.index(router.about.default)
    how = "leaving each domain out" if by == "domain" else f"cross-validated over prompts in {len(split)} folds"
    return _evaluation(trace, how, route, default, k, learners, replicates, seed, advance)
