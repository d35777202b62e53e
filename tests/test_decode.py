"""The live decoder on tiny models: lossless for every policy, kind and k; what it decodes is what is recorded."""

import dataclasses

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import hedgelab as hl
from hedgelab.trace import open_trace
from tests.sizes import few, thorough
from tests.strategies_live import joint, same_texts
from tests.strategies_recording import WORDS, tiny_checkpoint, tiny_head, tiny_prompts
from traces.__main__ import app
from traces.collect import FollowUp, collect, jobs_of
from traces.config import parse_config
from traces.decode import DecodeError, Decoder
from traces.drafters.base import FlatDrafter, Logits
from traces.live.command import Streamer
from traces.live.recording import Recorder
from traces.live.schedule import Schedule, Setting
from traces.sampling import process
from traces.targets import load_target
from traces.texts import Texts

IDS = sorted({0, *range(3, WORDS, 2)})
LAWS = [
    {"name": "exit", "kind": "exit", "options": {"layer": 2}},
    {"name": "truncated", "kind": "truncated", "options": {"checkpoint": "truncated"}},
    {"name": "deep", "kind": "head", "options": {"checkpoint": "deep"}},
    {"name": "medusa", "kind": "medusa", "options": {"checkpoint": "medusa"}},
    {"name": "small", "kind": "causal", "options": {"model": "small"}},
    {"name": "itself", "kind": "causal", "options": {"model": "target"}},
    {"name": "ngram", "kind": "ngram", "options": {"texts": "texts.safetensors"}},
    {"name": "rest-chain", "kind": "retrieval-chain", "options": {"texts": "texts.safetensors"}},
]
CERTAIN = [
    {"name": "lookup", "kind": "lookup", "options": {"longest": 3, "shortest": 1}},
    {"name": "static", "kind": "tree", "options": {"over": "deep", "nodes": 9}},
    {"name": "wide", "kind": "tree", "options": {"over": "truncated", "nodes": 7}},
    {"name": "dynamic", "kind": "dynamic-tree", "options": {"checkpoint": "deep", "width": 2, "nodes": 6}},
    {"name": "rest", "kind": "retrieval", "options": {"texts": "texts.safetensors", "nodes": 6}},
]
SEVERAL = [
    {"name": "nodes", "kind": "several", "options": {"over": "small", "drafts": 2, "form": "nodes"}},
    {"name": "sequences", "kind": "several", "options": {"over": "deep", "drafts": 3, "form": "sequences"}},
]
POOL = [*LAWS, *CERTAIN, *SEVERAL]
NAMES = [entry["name"] for entry in POOL]
GREEDY, SOFT = ({"temperature": 0.0}, {"temperature": 0.0}), ({"temperature": 0.8}, {"temperature": 1.2})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decode")
    tiny_checkpoint(folder / "target", rows=WORDS + 6, sharp=3.0)
    tiny_checkpoint(folder / "small", seed=3, layers=2)
    tiny_prompts(folder / "prompts.jsonl", 4)
    target = load_target(str(folder / "target"))
    tiny_head(folder / "deep", target, "eagle", (0, 2, 3), IDS)
    tiny_head(folder / "truncated", target, "truncated", (2,), IDS)
    tiny_head(folder / "medusa", target, "medusa", (1, 3), IDS, depth=3)
    document = document_of(folder, SOFT, LAWS[:1], max_new_tokens=40)
    collect(parse_config(document, folder), document, folder / "train")
    Texts.load(folder / "train").save(folder / "texts.safetensors")
    return folder


def document_of(home, how, drafters, **changes):
    return {
        "name": "tiny", "target": str(home / "target"), "prompts": {"file": "prompts.jsonl"}, "processing": how[0],
        "drafter_processing": how[1], "max_new_tokens": 24, "k": 4, "batch": 3, "seed": 11, "drafters": drafters,
        "loop": 0, **changes,
    }  # fmt: skip


def decoder_of(home, how, drafters=POOL, on_fault="stop", processors=(), **changes):
    config = parse_config(document_of(home, how, drafters, **changes), home)
    return Decoder.open(config, on_fault=on_fault, processors=processors)


@pytest.fixture(scope="module")
def greedy(home):
    return decoder_of(home, GREEDY)


@pytest.fixture(scope="module")
def soft(home):
    return decoder_of(home, SOFT)


def some(*names):
    """The pool's entries of these names, with those that they read."""
    wanted = {*names, *(entry["options"].get("over") for entry in POOL if entry["name"] in names)}
    return [entry for entry in POOL if entry["name"] in wanted]


SMALL = some("lookup", "exit", "static", "sequences", "ngram")


@pytest.fixture(scope="module")
def small(home):
    """A greedy decoder of few drafters, and what it writes without them."""
    decoder = decoder_of(home, GREEDY, SMALL, max_new_tokens=14)
    return decoder, decoder.run(jobs(decoder, 3), "autoregressive")


@pytest.fixture(scope="module")
def plain(greedy):
    return greedy.run(jobs(greedy, 4), "autoregressive")


def jobs(decoder, count=None):
    return jobs_of(decoder.config, decoder.target)[0][:count]


def rounds_are_whole(run):
    for text in run.texts:
        assert text.committed.sum() == text.rows
        assert np.array_equal(text.starts, np.cumsum(text.committed) - text.committed)
        assert (text.raw >= text.accepted).all()
        assert (text.proposed >= text.raw).all()
        full = text.committed == text.accepted + 1
        assert full[:-1].all()  # only a last round can be cut


@pytest.mark.parametrize(
    ("name", "k"),
    [*((name, 4) for name in NAMES), ("deep", 1), ("sequences", 2)],
)
def test_greedy_text_of_every_kind(greedy, plain, name, k):
    run = greedy.run(jobs(greedy, 4), name, Setting(k, seed=11), batch=3)
    same_texts(run, plain)
    rounds_are_whole(run)
    if name == "itself":
        full = np.concatenate([text.committed[:-1] for text in run.texts])
        assert (full == k + 1).mean() > 0.97  # but for rows where two logits all but tie


LEARNERS = ["normalhedge", "ftpl", "ucbspec", "exp3-p", "metasd-onpath", "thompson-beta", "uniform", "fixed"]


@pytest.mark.parametrize("learner", few(thorough(hl.learners(), LEARNERS), LEARNERS[:3]))
def test_greedy_text_of_every_learner(small, learner):
    decoder, plain = small
    policy = hl.learner(learner, drafter="deep") if learner == "fixed" else learner
    run = decoder.run(jobs(decoder, 3), policy, Setting(3, seed=2), batch=2)
    same_texts(run, plain)
    rounds_are_whole(run)


@pytest.mark.parametrize(
    ("schedule", "objective"),
    [
        ("every", "mixture"), ("every=3", "length"), ("turns=2", "acceptance"), ("random=3", "length"),
        ("likely=2", "mixture"), ("never", "length"), ("every=2,turns=1", "length"),
    ],
)  # fmt: skip
def test_greedy_text_of_every_schedule(small, schedule, objective):
    decoder, plain = small
    setting = Setting(4, objective=objective, seed=5, carry_over=True, schedule=Schedule.parse(schedule))
    same_texts(decoder.run(jobs(decoder, 3), "normalhedge", setting, batch=2), plain)


@pytest.mark.parametrize("name", [entry["name"] for entry in CERTAIN])
def test_certain_drafts_leave_the_text_to_the_target(soft, name):
    """A certain draft is accepted if the target draws it: coin for coin the text of plain sampling."""
    plain = soft.run(jobs(soft), "autoregressive")
    run = soft.run(jobs(soft), name, Setting(4, seed=11), batch=3)
    assert [text.tokens for text in run.texts] == [text.tokens for text in plain.texts]
    assert run.rounds < plain.rounds or name == "rest"


def test_the_collector_writes_the_plain_text(home, soft, tmp_path):
    document = document_of(home, SOFT, LAWS[:1])
    collect(parse_config(document, home), document, tmp_path / "trace")
    trace = open_trace(tmp_path / "trace")
    plain = soft.run(jobs(soft), "autoregressive")
    assert np.concatenate([text.tokens[1:] for text in plain.texts]).tolist() == trace.token.tolist()
    assert [text.stop for text in plain.texts] == trace.stop.tolist()


def test_batches_change_nothing(greedy, soft):
    for decoder in (greedy, soft):
        one, three = (decoder.run(jobs(decoder, 4), "hedge", Setting(3, seed=4), batch=batch) for batch in (2, 4))
        assert [text.tokens for text in one.texts] == [text.tokens for text in three.texts]
        assert [text.picks.tolist() for text in one.texts] == [text.picks.tolist() for text in three.texts]


@pytest.mark.parametrize(
    ("policy", "objective", "drafters", "carry_over"),
    [
        ("normalhedge", "length", POOL, False), ("hedge", "acceptance", SMALL, True),
        ("ucbspec", "length", SMALL, False),
        ("exp3spec", "acceptance", SMALL, True), ("metasd", "length", SMALL, True), ("uniform", "length", SMALL, False),
    ],
)  # fmt: skip
def test_greedy_rounds_are_those_of_replay(home, tmp_path, policy, objective, drafters, carry_over):
    """Live and replayed on what was recorded live: the same picks, the same accepted drafts, round for round."""
    decoder = decoder_of(home, GREEDY, drafters)
    setting = Setting(4, objective=objective, seed=3, carry_over=carry_over)
    with Recorder(tmp_path / "live", decoder, jobs(decoder), document_of(home, GREEDY, drafters), "cpu") as recorder:
        run = decoder.run(jobs(decoder), policy, setting, batch=1, keep=True, ended=recorder.write)
        recorder.finish(run)
    trace = open_trace(tmp_path / "live")
    assert trace.check() == []
    again = hl.replay(trace, policy, k=4, objective=objective, seed=3, carry_over=carry_over)
    assert np.concatenate([text.picks for text in run.texts]).tolist() == again.picks.tolist()
    assert np.concatenate([text.accepted for text in run.texts]).tolist() == again.accepted.tolist()
    assert run.mat == again.mat
    assert len(set(again.picks.tolist())) > 1


@pytest.mark.parametrize("how", thorough([GREEDY, SOFT], [SOFT]))
def test_live_traces_are_those_of_the_collector(home, tmp_path, how):
    """Scores of a text do not depend on who has drafted it. Certain drafts give the collector's text itself."""
    decoder = decoder_of(home, how)
    document = document_of(home, how, POOL)
    with Recorder(tmp_path / "live", decoder, jobs(decoder), document, "cpu") as recorder:
        run = decoder.run(jobs(decoder), "lookup", Setting(4, seed=11), batch=3, keep=True, ended=recorder.write)
        recorder.finish(run)
    collect(parse_config(document, home), document, tmp_path / "collected")
    live, collected = open_trace(tmp_path / "live"), open_trace(tmp_path / "collected")
    assert live.token.tolist() == collected.token.tolist()
    assert live.manifest.drafters == collected.manifest.drafters
    for name in ("alpha", "gamma", "confidence", "target_logprob", "target_entropy", "target_top2_margin"):
        np.testing.assert_allclose(getattr(live, name), getattr(collected, name), atol=2e-4, err_msg=name)
    for name in ("proposed", "match_length", "stop", "prompt_ids", "first_token"):
        assert np.array_equal(getattr(live, name), getattr(collected, name)), name


@pytest.mark.parametrize("limit", [2, 19])
def test_token_limit(home, limit):
    decoder = decoder_of(home, GREEDY, some("itself", "static", "sequences"), max_new_tokens=limit)
    plain = decoder.run(jobs(decoder, 3), "autoregressive")
    for name in ("itself", "static", "sequences"):
        run = decoder.run(jobs(decoder, 3), name, Setting(4), batch=3)
        assert all(len(text.tokens) <= limit for text in run.texts)
        assert any(text.stop == "length" and len(text.tokens) == limit for text in run.texts)
        same_texts(run, plain)


def test_context_limit(home):
    decoder = decoder_of(home, GREEDY, max_new_tokens=500)
    plain = decoder.run(jobs(decoder, 3), "autoregressive")
    run = decoder.run(jobs(decoder, 3), "itself", Setting(4), batch=3)
    same_texts(run, plain)
    assert any(text.stop == "context" and len(text.job.ids) + len(text.tokens) == 96 for text in run.texts)
    long = dataclasses.replace(jobs(decoder)[0], ids=(5,) * 96)
    with pytest.raises(DecodeError, match="its prompt of 96 tokens leaves no room in the context of 96"):
        decoder.run([long], "itself")


def test_eos_inside_drafts(greedy, plain):
    """An end that is accepted as a draft ends the text there, whatever else was accepted."""
    run = greedy.run(jobs(greedy, 4), "itself", Setting(4))
    ends = [text for text in run.texts if text.stop == "eos"]
    assert all(text.tokens.index(0) == len(text.tokens) - 1 for text in ends)
    same_texts(run, plain)


class Broken(FlatDrafter):
    """Raises, or says NaN, from a row on."""

    kind = "ngram"

    def __init__(self, inner, how, row):
        super().__init__(inner.name, inner.processing)
        self.inner, self.how, self.row, self.calls = inner, how, row, 0

    def fresh(self):
        return Broken(self.inner, self.how, self.row)

    def describe(self):
        return self.inner.describe()

    def logits(self, prefix):
        self.calls += 1
        found = self.inner.logits(prefix)
        if self.calls <= self.row:
            return found
        if self.how == "raise":
            raise RuntimeError("out of paper")
        return Logits(torch.full_like(found.values, torch.nan), found.ids, found.index)

    def branches(self, prefix, layers):
        return self.inner.branches(prefix, layers)


@pytest.mark.parametrize(
    ("how", "policy", "row"),
    [("raise", "hedge", 0), ("nan", "hedge", 5), ("nan", "ngram", 0), ("raise", "ngram", 5), ("nan", "ucb1", 5)],
)
def test_failing_drafters(home, how, policy, row):
    """A drafter that fails in mid-stream ends in an error that names it, or is left out: never in another text."""
    for on_fault in ("stop", "drop"):
        decoder = decoder_of(home, GREEDY, some("lookup", "ngram", "deep"), on_fault=on_fault, max_new_tokens=16)
        plain = decoder.run(jobs(decoder, 4), "autoregressive")
        broken = decoder.names.index("ngram")
        decoder.drafters[broken] = Broken(decoder.drafters[broken], how, row)
        if on_fault == "stop":
            with pytest.raises(DecodeError, match=r"drafter 'ngram'.*(out of paper|NaN)"):
                decoder.run(jobs(decoder, 4), policy, Setting(3))
            continue
        run = decoder.run(jobs(decoder, 4), policy, Setting(3), batch=2)
        same_texts(run, plain)
        assert any("ngram" in text.dropped for text in run.texts)


def test_a_dropped_drafter_that_drafts_alone(home):
    """Others take its place, also those that draft more tokens than it, or read the target's states."""
    decoder = decoder_of(home, GREEDY, some("static", "ngram"), on_fault="drop", max_new_tokens=16)
    plain = decoder.run(jobs(decoder, 2), "autoregressive")
    broken = decoder.names.index("ngram")
    decoder.drafters[broken] = Broken(decoder.drafters[broken], "raise", 0)
    picks = []
    for seed in range(4):
        run = decoder.run(jobs(decoder, 2), "ngram", Setting(3, seed=seed), batch=2)
        same_texts(run, plain)
        assert all(text.dropped.keys() == {"ngram"} for text in run.texts)
        picks += [text.picks for text in run.texts]
    assert decoder.names.index("static") in np.concatenate(picks)


def test_second_turn_without_room(small):
    """A conversation whose first answer fills the context ends with it."""
    decoder, _ = small
    first = dataclasses.replace(jobs(decoder, 1)[0], ids=(5,) * 90)
    follow_up = FollowUp(dataclasses.replace(first.prompt, id="second"), (5,) * 4, (5,) * 4)
    first, other = dataclasses.replace(first, then=follow_up), jobs(decoder, 2)[1]
    for policy in ("autoregressive", "hedge"):
        run = decoder.run([first, other], policy)
        assert len(run.texts) == 2
        assert "leaves no room in the context of 96" in run.refused["second"]


def test_streamed_texts_are_whole(small):
    """Texts that are decoded together are printed one after another."""
    decoder, plain = small
    said = []
    decoder.run(jobs(decoder, 3), "lookup", Setting(4), batch=2, heard=Streamer(decoder.target, said.append))
    texts = [[token for token in text.tokens if token not in decoder.target.eos] for text in plain.texts]
    assert "".join(said) == "".join(decoder.target.tokenizer.decode(text) + "\n" for text in texts)


def test_processors_see_the_whole_text_once(home):
    """A repetition penalty, which depends on every token before, by the library's own greedy decoding."""
    from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

    penalty = RepetitionPenaltyLogitsProcessor(1.7)
    decoder = decoder_of(home, GREEDY, some("itself", "static", "sequences", "lookup"), processors=(penalty,))
    model = decoder.target.model
    plain = decoder.run(jobs(decoder, 4), "autoregressive")
    for text in plain.texts:
        ids = torch.tensor([text.job.ids])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, pad_token_id=1,
            logits_processor=LogitsProcessorList([penalty]), suppress_tokens=list(range(WORDS, WORDS + 6)),
        )  # fmt: skip
        assert out[0, ids.shape[1] :].tolist() == text.tokens
    unpenalised = decoder_of(home, GREEDY).run(jobs(decoder, 4), "autoregressive")
    assert [text.tokens for text in plain.texts] != [text.tokens for text in unpenalised.texts]
    for name in ("itself", "static", "sequences", "lookup"):
        same_texts(decoder.run(jobs(decoder, 4), name, Setting(4), batch=2), plain)


def test_target_without_a_law(home):
    def spoilt(ids, logits):
        return torch.full_like(logits, torch.nan) if ids.shape[1] > 12 else logits

    decoder = decoder_of(home, SOFT, processors=(spoilt,))
    with pytest.raises(DecodeError, match="logits of 'target' hold NaN"):
        decoder.run(jobs(decoder), "lookup", Setting(4))


def test_refused(greedy):
    with pytest.raises(ValueError, match="k is 9; the drafters were made for drafts of at most 4"):
        greedy.run(jobs(greedy), "hedge", Setting(9))
    with pytest.raises(ValueError, match="batch must be a whole number of at least 1, got 0"):
        greedy.run(jobs(greedy), "hedge", batch=0)
    with pytest.raises(ValueError, match="text 0 was decoded before with this policy"):
        greedy.run(jobs(greedy, 1) * 2, "hedge", Setting(3, carry_over=True))
    with pytest.raises(DecodeError, match="its prompt has ids outside 0 to"):
        greedy.run(greedy.jobs([[9999]]), "hedge")
    with pytest.raises(DecodeError, match="its prompt has no token"):
        greedy.run(greedy.jobs([[]]), "hedge")
    with pytest.raises(ValueError, match="estimator alpha: bandits are told gamma"):
        greedy.run(jobs(greedy), "ucb1", Setting(3, objective="acceptance", estimator="alpha"))
    with pytest.raises(ValueError, match="nobody"):
        greedy.run(jobs(greedy), "nobody")
    with pytest.raises(ValueError, match="on_fault must be one of stop, drop, got 'hope'"):
        Decoder(greedy.target, greedy.drafters, greedy.config, on_fault="hope")


def test_command(home, tmp_path):
    """Text on stdout, what it took on stderr, a trace in the folder."""
    import yaml

    (home / "live.yaml").write_text(yaml.safe_dump(document_of(home, SOFT, POOL)))
    where = ["--config", str(home / "live.yaml"), "--pool", str(home)]
    said = CliRunner().invoke(
        app, ["decode", *where, "--prompt", "w3 w4", "--policy", "normalhedge", "--record", str(tmp_path / "out")]
    )
    assert said.exit_code == 0, said.output
    assert all(word in said.stderr for word in ("MAT", "tokens/s", "evaluate"))
    assert open_trace(tmp_path / "out").check() == []
    alone = CliRunner().invoke(app, ["decode", *where, "--prompt", "w3 w4", "--policy", "lookup"])
    plain = CliRunner().invoke(app, ["decode", *where, "--prompt", "w3 w4", "--policy", "autoregressive"])
    assert alone.stdout == plain.stdout != ""
    none = ["--policy", "autoregressive", "--record", str(tmp_path / "none")]
    refused = CliRunner().invoke(app, ["decode", *where, "--prompt", "w3", *none])
    assert refused.exit_code == 1
    assert "--record" in refused.stderr
    assert not (tmp_path / "none").exists()
    wrong = CliRunner().invoke(app, ["decode", *where, "--prompt", "w3", "--policy", "nobody"])
    assert wrong.exit_code == 1
    assert "nobody" in wrong.stderr


# ------------------------------------------------------------------ the law of sampled text


FEW = {"temperature": 0.9, "top_k": 2}


def text_law(decoder, job, length):
    """{text: probability} of the first tokens of plain sampling, each prefix read anew."""
    found = {(): 1.0}
    for _ in range(length):
        longer = {}
        for text, chance in found.items():
            if text and text[-1] in decoder.target.eos:
                longer[text] = chance
                continue
            ids = torch.tensor([[*job.ids, *text]])
            logits = decoder.target.known(decoder.target.model(input_ids=ids).logits[:, -1])
            probs = process(logits, decoder.config.processing).probs[0].double()
            for v in probs.nonzero()[:, 0].tolist():
                longer[(*text, v)] = chance * float(probs[v] / probs.sum())
        found = longer
    return found


@pytest.mark.parametrize(
    "name", ["exit", "deep", "small", "itself", "static", "lookup", "nodes", "sequences", "medusa"]
)
def test_sampled_text_has_the_law_of_the_target(home, name):
    """Every outcome of every coin, through the decoder itself: the law of texts of three tokens is p's."""
    decoder = decoder_of(home, (FEW, {"temperature": 1.0, "top_k": 2}), some(name), k=2, max_new_tokens=3)
    k = 1 if name in ("nodes", "sequences") else 2  # deeper ones have too many outcomes: see test_live_accept
    job = jobs(decoder, 1)[0]
    law = joint(lambda chance: tuple(decoder.run([job], name, Setting(k), chance=lambda _: chance).texts[0].tokens))
    exact = text_law(decoder, job, 3)
    assert law.keys() == exact.keys()
    assert len(exact) > 4
    for text, probability in exact.items():
        assert law[text] == pytest.approx(probability, abs=2e-6)  # of float32 laws


@pytest.mark.parametrize(
    ("policy", "seed"), thorough([("hedge", 1), ("exp3spec", 3), ("metasd-onpath", 2)], [("metasd-onpath", 2)])
)
def test_sampled_text_under_policies(home, policy, seed):
    """The same with learners, whose picks follow what was committed, and MetaSD's what was drafted off the path."""
    pool = some("exit", "lookup")
    decoder = decoder_of(home, (FEW, {"temperature": 1.0, "top_k": 2}), pool, k=2, max_new_tokens=3)
    job = jobs(decoder, 1)[0]
    setting = Setting(2, seed=seed)
    law = joint(lambda chance: tuple(decoder.run([job], policy, setting, chance=lambda _: chance).texts[0].tokens))
    exact = text_law(decoder, job, 3)
    assert law.keys() == exact.keys()
    for text, probability in exact.items():
        assert law[text] == pytest.approx(probability, abs=2e-6)


def test_sampled_rounds_are_those_of_replay(home, tmp_path):
    """Live MAT lies where replays of the same texts with other coins put it.

    The live rounds are one draw of coins; replicates of the replay give that draw's mean and spread. A false alarm has
    a probability of 6e-5 for each policy (4 standard deviations of a sum over 24 texts).
    """
    decoder = decoder_of(home, SOFT, some("small", "deep", "ngram"), max_new_tokens=16)
    many = [dataclasses.replace(job, sequence_id=i) for i, job in enumerate(jobs(decoder) * 3)]
    for policy in ("hedge", "small"):
        document = document_of(home, SOFT, [])
        with Recorder(tmp_path / policy, decoder, many, document, "cpu") as recorder:
            run = decoder.run(many, policy, Setting(4, seed=7), batch=32, keep=True, ended=recorder.write)
            recorder.finish(run)
        trace = open_trace(tmp_path / policy)
        learner = hl.learner("fixed", drafter="small") if policy == "small" else policy
        rounds = np.array([hl.replay(trace, learner, k=4, replicate=1 + i).rounds for i in range(60)])
        live = sum(len(text.picks) for text in run.texts if text.rows)
        assert abs(live - rounds.mean()) < 4 * rounds.std(ddof=1) * (1 + 1 / 60) ** 0.5


def test_interruption_leaves_a_readable_trace(home, tmp_path):
    """What was written before Ctrl-C is a trace: not complete, and every text whole."""
    decoder = decoder_of(home, SOFT)
    document = document_of(home, SOFT, POOL)

    def interrupt(texts):
        recorder.write(texts)
        if recorder.written == 2:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        Recorder(tmp_path / "live", decoder, jobs(decoder), document, "cpu") as recorder,
    ):
        decoder.run(jobs(decoder), "hedge", Setting(3), batch=2, keep=True, ended=interrupt)
    trace = open_trace(tmp_path / "live")
    assert trace.sequences == 4
    assert not trace.manifest.complete
    assert [problem for problem in trace.check() if "complete" not in problem] == []
