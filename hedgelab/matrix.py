r"""The acceptance matrix: how each drafter does alone in each domain, with 95% intervals over prompts.

Two numbers a cell, both ratios of sums over the prompts of the domain:

    acceptance   sum of gamma of the first draft / tokens: chance that a round's first draft is accepted, over all rows
    mat          tokens / expected rounds of the drafter alone, `oracles.expected_fixed_rounds`: walked MAT, exact over
                 coins (the mean over all rows of an estimated committed length is another number)

**Intervals.** Prompts are the sample, domains and drafters are fixed; texts of one prompt are one observation, and so
are the turns of one conversation. With X_p and Y_p the sums of a prompt's texts, R = sum X / sum Y, n prompts, the
first-order effect of a prompt is

    e_p = sqrt(n / (n - 1)) (X_p - R Y_p) / sum Y,          interval R ± t_{n-1} sqrt(sum_p e_p^2)

(Cochran 1977, section 6.4; the delta method). A difference or mean of ratios on the same prompts has the same
combination of effects, which makes it paired. Over several domains the effects of one conversation are added before
they are squared, those of different prompts are independent; the degrees of freedom are Welch and Satterthwaite's
(1946).

Why not a bootstrap: at 24 prompts a domain, real ones (12 drafters, temperature 0.6) resampled from themselves 1500
times, this interval covers 94% on average over 28 cells (83% in one where a single text that loops carries the ratio,
where all do badly); the percentile bootstrap 92%, BCa 92%, the percentile interval widened as by Hesterberg (2015) 94%.
It needs no seed and has exact quantiles at the small levels that corrected comparisons ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab import oracles
from hedgelab.comparison import half_width
from hedgelab.feedback import draft_length
from hedgelab.regret import Interval, student_quantile
from hedgelab.sheets import Cell, Sheet
from hedgelab.storage.manifest import Drafter
from hedgelab.trace import Trace

__all__ = [
    "OF",
    "AcceptanceMatrix",
    "Ratios",
    "Role",
    "acceptance_matrix",
    "default_length",
    "family_of",
    "role_of",
    "roles_of",
]

OF = {"mat": "MAT (tokens / rounds)", "acceptance": "Acceptance of the first draft"}
_DRAFTS = 5


class Role(NamedTuple):
    """What a drafter learned from: "specialist" of one domain, its home; "generalist" of several; "other"."""

    name: str
    home: str = ""


def role_of(drafter: Drafter) -> Role:
    """Return the role that the manifest gives a drafter, by the domains of the texts it was trained on or counted from.

    One domain: specialist. Several: generalist. No list of domains (lookup, exits, causal models, bare manifests):
    other.

    >>> from hedgelab.storage.manifest import Processing
    >>> role_of(Drafter("ngram-sql", "ngram", "chain", 1, Processing(1.0), None, {"domains": ["sql"]}))
    Role(name='specialist', home='sql')
    """
    given = drafter.details.get("domains")
    names = given if isinstance(given, list) and all(isinstance(name, str) for name in given) else []
    domains = list(dict.fromkeys(str(name) for name in names))
    if not domains:
        return Role("other")
    return Role("specialist", domains[0]) if len(domains) == 1 else Role("generalist")


def roles_of(drafters: Sequence[Drafter]) -> tuple[Role, ...]:
    """Return the role of each of a trace's drafters; one that reads another's laws has learned what that one has.

    >>> from hedgelab.storage.manifest import Processing
    >>> head = Drafter("eagle-sql", "head", "chain", 6, Processing(1.0), None, {"domains": ["sql"]})
    >>> tree = Drafter("eagle-sql-tree", "tree", "tree", 6, Processing(0.0), None, {"over": "eagle-sql"})
    >>> roles_of([tree, head])[0], role_of(tree)
    (Role(name='specialist', home='sql'), Role(name='other', home=''))
    """
    own = {drafter.name: role_of(drafter) for drafter in drafters}
    return tuple(own.get(str(drafter.details.get("over")), own[drafter.name]) for drafter in drafters)


def family_of(drafter: Drafter) -> str:
    """Return what drafters of a kind have in common: the kind, and of trained heads the layers that they read.

    >>> from hedgelab.storage.manifest import Processing
    >>> family_of(Drafter("l15-sql", "truncated", "chain", 1, Processing(1.0), None, {"taps": [15]}))
    'truncated 15'
    """
    taps = drafter.details.get("taps")
    return drafter.kind + " " + "-".join(map(str, taps)) if isinstance(taps, list) and taps else drafter.kind


def default_length(trace: Trace, k: int | None) -> int:
    """Return k, by default 5 or the trace's own if that is shorter. ValueError for what the trace can't answer for."""
    return draft_length(trace, min(_DRAFTS, trace.k) if k is None else k)


@dataclass(frozen=True)
class Ratios:
    """Ratios of sums over prompts, of N drafters in D domains, and what their intervals are made of.

    estimate : (N, D) float64. effects : D times (n_d, N), e_p in the module's docstring; NaN for a single prompt
    observation : D times (n_d,) int64, which of all observations a row belongs to
    """

    estimate: NDArray[np.float64]
    effects: tuple[NDArray[np.float64], ...]
    observation: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(
        cls,
        above: Sequence[NDArray[np.float64]],
        below: Sequence[NDArray[np.float64]],
        observation: Sequence[NDArray[np.int64]] | None = None,
    ) -> Ratios:
        """Return the ratios of sums; above, below : D times (n_d, N), a row a prompt.

        observation : D times (n_d,), rows of one number are one observation; None: all differ
        """
        if observation is None:
            ends = np.cumsum([len(x) for x in above])
            observation = [np.arange(end - len(x), end) for x, end in zip(above, ends, strict=True)]
        estimates, effects = [], []
        for x, y in zip(above, below, strict=True):
            n, total = len(x), y.sum(axis=0)
            ratio = x.sum(axis=0) / total
            spread = math.sqrt(n / (n - 1)) if n > 1 else math.nan
            estimates.append(ratio)
            effects.append(spread * (x - ratio * y) / total)
        return cls(np.array(estimates).T, tuple(effects), tuple(observation))

    def contrast(self, weights: ArrayLike, tail: float = 0.025) -> Interval:
        """Return sum of weights * estimate, with the interval that leaves out `tail` at either end, by default 95%.

        weights : (N, D), such as 1 and -1 for a paired difference. NaN ends where a domain that counts has one prompt.

        >>> ratios = Ratios.of([np.array([[2.0, 2.0], [4.0, 4.0]])], [np.array([[1.0, 2.0], [2.0, 2.0]])])
        >>> ratios.contrast([[1.0], [-1.0]]).estimate, ratios.contrast([[1.0], [0.0]])
        (0.5, Interval(estimate=2.0, low=2.0, high=2.0))
        """
        w = np.asarray(weights, np.float64)
        if w.shape != self.estimate.shape:
            raise ValueError(f"weights must be (drafters, domains) = {self.estimate.shape}, got {w.shape}")
        estimate = float((w * self.estimate).sum())
        counted = [d for d in range(len(self.effects)) if w[:, d].any()]
        parts = [self.effects[d] @ w[:, d] for d in counted]
        variances = [float(effects @ effects) for effects in parts]
        if not parts or math.isnan(sum(variances)):
            return Interval(estimate, *([math.nan] * 2 if parts else [estimate] * 2))
        together = np.bincount(np.concatenate([self.observation[d] for d in counted]), np.concatenate(parts))
        total, half = float(together @ together), 0.0
        if total > 0:
            degrees = sum(variances) ** 2 / sum(v**2 / (len(e) - 1) for v, e in zip(variances, parts, strict=True))
            half = student_quantile(max(1.0, round(degrees, 6)), tail) * math.sqrt(total)
        return Interval(estimate, estimate - half, estimate + half)

    def cell(self, drafter: int, domain: int) -> Interval:
        """Return one ratio with its 95% interval."""
        return self.contrast(self.pick(drafter, domain))

    def pick(self, drafter: int, domain: int) -> NDArray[np.float64]:
        """Return the weights (N, D) of one ratio."""
        weights = np.zeros_like(self.estimate)
        weights[drafter, domain] = 1.0
        return weights


@dataclass(frozen=True)
class AcceptanceMatrix:
    """N drafters in the D domains that have texts; see the module's docstring.

    drafters, families, roles : N, in the trace's order. domains, prompts, tokens : D, in the manifest's order
    """

    trace: str
    k: int
    drafters: tuple[str, ...]
    families: tuple[str, ...]
    roles: tuple[Role, ...]
    domains: tuple[str, ...]
    prompts: tuple[int, ...]
    tokens: tuple[int, ...]
    acceptance: Ratios
    mat: Ratios

    def ratios(self, of: str) -> Ratios:
        """Return `mat` or `acceptance` by name; ValueError for others."""
        if of not in OF:
            raise ValueError(f"of must be one of {', '.join(OF)}, got {of!r}")
        return self.mat if of == "mat" else self.acceptance

    def title(self, of: str) -> str:
        """Return what a table or a figure of `of` shows."""
        single = ", no ± where a domain has one prompt" if 1 in self.prompts else ""
        return f"{self.subject(of)}, ± half of the 95% interval over prompts{single}"

    def subject(self, of: str) -> str:
        """Return what the numbers of `of` are."""
        return f"{OF[of]} of each drafter alone, k = {self.k}" if of == "mat" else OF[of]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Rows for people: families as the trace first names them, in each its specialists in the order of the domains,
        then generalists, then others."""
        ranks = ("specialist", "generalist", "other")

        def place(i: int) -> tuple[int, int, int, int]:
            role = self.roles[i]
            home = self.domains.index(role.home) if role.home in self.domains else len(self.domains)
            return self.families.index(self.families[i]), ranks.index(role.name), home, i

        return tuple(sorted(range(len(self.drafters)), key=place))

    def is_home(self, drafter: int, domain: int) -> bool:
        """Whether a drafter is the domain's specialist."""
        return self.roles[drafter] == Role("specialist", self.domains[domain])

    def sheet(self, of: str = "mat") -> Sheet:
        """Return the table of `of`: drafters by domains, home cells underlined, the largest of each column bold."""
        ratios = self.ratios(of)
        best = ratios.estimate.max(axis=0)
        rows = [
            [
                Cell(self.drafters[i]),
                *(
                    Cell(half_width(ratios.cell(i, d)), bool(ratios.estimate[i, d] == best[d]), self.is_home(i, d))
                    for d in range(len(self.domains))
                ),
            ]
            for i in self.order
        ]
        return Sheet(self.title(of), ["drafter", *self.domains], rows)

    def document(self) -> dict[str, Any]:
        """Return the numbers as values that JSON can hold; an interval that nobody knows is null."""

        def cells(ratios: Ratios, i: int) -> dict[str, dict[str, float | None]]:
            intervals = {name: ratios.cell(i, d)._asdict() for d, name in enumerate(self.domains)}
            return {
                name: {key: None if math.isnan(value) else value for key, value in interval.items()}
                for name, interval in intervals.items()
            }

        return {
            "trace": self.trace,
            "k": self.k,
            "domains": {
                name: {"prompts": prompts, "tokens": tokens}
                for name, prompts, tokens in zip(self.domains, self.prompts, self.tokens, strict=True)
            },
            "drafters": {
                name: {
                    "family": self.families[i],
                    "role": self.roles[i].name,
                    "home": self.roles[i].home or None,
                    **{of: cells(self.ratios(of), i) for of in OF},
                }
                for i, name in enumerate(self.drafters)
            },
        }


def _first_gammas(trace: Trace) -> NDArray[np.float64]:
    """Return (S, N) sums over rows of gamma of a first draft."""
    sums = np.empty((trace.sequences, len(trace.drafters)))
    for part in trace.parts():
        for begin, end, position in zip(part.begin, part.end, part.position, strict=True):
            sums[position, trace.flat_columns] = part.gamma_flat[begin:end].sum(axis=0, dtype=np.float64)
            sums[position, trace.deep_columns] = part.gamma_deep[begin:end, 0].sum(axis=0, dtype=np.float64)
    unknown = np.argwhere(np.isnan(sums))
    if len(unknown):
        s, i = unknown[0]
        raise ValueError(f"sequence {s}: gamma of {trace.drafters[i]!r} was not observed at every row")
    return sums


def acceptance_matrix(trace: Trace, k: int | None = None) -> AcceptanceMatrix:
    """Return acceptance and walked MAT of every drafter in every domain with texts, with intervals over prompts.

    k : draft length of the rounds, default 5, or the trace's own if that is shorter. ValueError for a k beyond the
    depth that was recorded, and for acceptances that were not observed. Deep drafters are walked with their law at
    every depth.

    >>> trace = Trace.from_arrays(token=[1, 2, 3], alpha=[[0, 1], [0, 1], [1, 1]], gamma=[[0, 1], [0.5, 1], [1, 1]],
    ...                           offsets=[0, 2, 3], domains=["sql", "chat"], drafters=["a", "b"], k=4)
    >>> table = acceptance_matrix(trace)
    >>> table.mat.estimate.tolist(), table.acceptance.estimate.tolist()
    ([[1.0, 1.0], [2.0, 1.0]], [[0.25, 1.0], [1.0, 1.0]])
    """
    k = default_length(trace, k)
    rounds = oracles.expected_fixed_rounds(trace, k=k).rounds
    gammas = _first_gammas(trace)
    lengths = np.repeat(np.diff(trace.offsets).astype(np.float64)[:, None], len(trace.drafters), axis=1)
    domains = [name for name in trace.manifest.domains if (trace.domains == name).any()]
    tokens: list[NDArray[np.float64]] = []  # of each domain: (prompts, N), and so below
    walked: list[NDArray[np.float64]] = []
    accepted: list[NDArray[np.float64]] = []
    observation: list[NDArray[np.int64]] = []
    label = np.unique(trace.conversations, return_inverse=True)[1]
    for domain in domains:
        here = np.flatnonzero(trace.domains == domain)
        names, prompt = np.unique(label[here], return_inverse=True)
        observation.append(names)
        for sums, values in ((tokens, lengths), (walked, rounds), (accepted, gammas)):
            total = np.zeros((len(names), len(trace.drafters)))
            np.add.at(total, prompt, values[here])
            sums.append(total)
    return AcceptanceMatrix(
        trace=trace.manifest.name,
        k=k,
        drafters=trace.drafters,
        families=tuple(family_of(drafter) for drafter in trace.manifest.drafters),
        roles=roles_of(trace.manifest.drafters),
        domains=tuple(domains),
        prompts=tuple(len(sums) for sums in tokens),
        tokens=tuple(int(sums[:, 0].sum()) for sums in tokens),
        acceptance=Ratios.of(accepted, tokens, observation),
        mat=Ratios.of(tokens, walked, observation),
    )
