"""The live decoder on tiny models: lossless for every policy, kind and k; what it decodes is what is recorded."""

import dataclasses

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import hedgelab as hl
from hedgelab.trace import open_trace
from tests.sizes import few
from tests.strategies_recording import WORDS, tiny_checkpoint, tiny_head, tiny_prompts
from traces.__main__ import app
from traces.collect import collect, jobs_of
from traces.config import parse_config
from traces.decode import DecodeError, Decoder
from traces.drafters.base import FlatDrafter, Logits
from traces.live.policy import Schedule, Setting
from traces.live.recording import Recorder
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
CLOSE = 1e-4  # of float32 logits of these models, which are of size 1


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


def jobs(decoder, count=None):
    return jobs_of(decoder.config, decoder.target)[0][:count]


def same_texts(run, plain):
    """Assert that texts are equal, each up to the first row at which rounding may choose."""
    compared = 0
    for one, other in zip(run.texts, plain.texts, strict=True):
        close = np.flatnonzero(other.margin < CLOSE)
        end = 1 + int(close[0]) if len(close) else len(other.tokens)
        assert one.tokens[:end] == other.tokens[:end]
        compared += end
        if end == len(other.tokens):
            assert (one.stop, len(one.tokens)) == (other.stop, len(other.tokens))
    assert compared > 0.9 * (plain.rows + len(plain.texts))  # hardly anything is left out


def rounds_are_whole(run):
    for text in run.texts:
        assert text.committed.sum() == text.rows
        assert np.array_equal(text.starts, np.cumsum(text.committed) - text.committed)
        assert (text.raw >= text.accepted).all()
        assert (text.proposed >= text.raw).all()
        full = text.committed == text.accepted + 1
        assert full[:-1].all()  # only a last round can be cut


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_of_every_kind(greedy, name, k):
    plain = greedy.run(jobs(greedy), "autoregressive")
    run = greedy.run(jobs(greedy), name, Setting(k, seed=11), batch=3)
    same_texts(run, plain)
    rounds_are_whole(run)
    if name == "itself":
        full = np.concatenate([text.committed[:-1] for text in run.texts])
        assert (full == k + 1).mean() > 0.97  # but for rows where two logits all but tie


@pytest.mark.parametrize("learner", few(hl.learners(), ["normalhedge", "hedge", "ucbspec", "metasd-onpath", "uniform"]))
def test_greedy_text_of_every_learner(greedy, learner):
    plain = greedy.run(jobs(greedy), "autoregressive")
    policy = hl.learner(learner, drafter="deep") if learner == "fixed" else learner
    run = greedy.run(jobs(greedy), policy, Setting(3, seed=2), batch=2)
    same_texts(run, plain)
    rounds_are_whole(run)


@pytest.mark.parametrize(
    "schedule", ["every", "every=3", "turns=2", "random=3", "likely=2", "never", "every=2,turns=1"]
)
@pytest.mark.parametrize("objective", ["length", "acceptance", "mixture"])
def test_greedy_text_of_every_schedule(greedy, schedule, objective):
    plain = greedy.run(jobs(greedy), "autoregressive")
    setting = Setting(4, objective=objective, seed=5, carry_over=True, schedule=Schedule.parse(schedule))
    run = greedy.run(jobs(greedy), "normalhedge", setting, batch=2)
    same_texts(run, plain)


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
        one, three = (decoder.run(jobs(decoder), "hedge", Setting(3, seed=4), batch=batch) for batch in (1, 3))
        assert [text.tokens for text in one.texts] == [text.tokens for text in three.texts]
        assert [text.picks.tolist() for text in one.texts] == [text.picks.tolist() for text in three.texts]


@pytest.mark.parametrize("policy", ["normalhedge", "hedge", "ucbspec", "exp3spec", "metasd", "ftl", "fixed-share"])
@pytest.mark.parametrize("objective", ["length", "acceptance"])
def test_greedy_rounds_are_those_of_replay(home, tmp_path, policy, objective):
    """Live and replayed on what was recorded live: the same picks, the same accepted drafts, round for round."""
    decoder = decoder_of(home, GREEDY)
    setting = Setting(4, objective=objective, seed=3, carry_over=True)
    with Recorder(tmp_path / "live", decoder, jobs(decoder), document_of(home, GREEDY, POOL), "cpu") as recorder:
        run = decoder.run(jobs(decoder), policy, setting, batch=1, keep=True, ended=recorder.write)
        recorder.finish(run)
    trace = open_trace(tmp_path / "live")
    assert trace.check() == []
    again = hl.replay(trace, policy, k=4, objective=objective, seed=3, carry_over=True)
    assert np.concatenate([text.picks for text in run.texts]).tolist() == again.picks.tolist()
    assert np.concatenate([text.accepted for text in run.texts]).tolist() == again.accepted.tolist()
    assert run.mat == again.mat
    assert len(set(again.picks.tolist())) > 1


@pytest.mark.parametrize("how", [GREEDY, SOFT])
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


@pytest.mark.parametrize("limit", [2, 3, 19])
def test_token_limit(greedy, home, limit):
    decoder = decoder_of(home, GREEDY, max_new_tokens=limit)
    for name in ("itself", "static", "sequences"):
        run = decoder.run(jobs(decoder), name, Setting(4))
        assert all(len(text.tokens) <= limit for text in run.texts)
        assert any(text.stop == "length" and len(text.tokens) == limit for text in run.texts)
        same_texts(run, decoder.run(jobs(decoder), "autoregressive"))


def test_context_limit(home):
    decoder = decoder_of(home, GREEDY, max_new_tokens=500)
    plain = decoder.run(jobs(decoder, 3), "autoregressive")
    run = decoder.run(jobs(decoder, 3), "itself", Setting(4), batch=3)
    same_texts(run, plain)
    assert any(text.stop == "context" and len(text.job.ids) + len(text.tokens) == 96 for text in run.texts)
    long = dataclasses.replace(jobs(decoder)[0], ids=(5,) * 96)
    with pytest.raises(DecodeError, match="its prompt of 96 tokens leaves no room in the context of 96"):
        decoder.run([long], "itself")


def test_eos_inside_drafts(greedy):
    """An end that is accepted as a draft ends the text there, whatever else was accepted."""
    plain = greedy.run(jobs(greedy), "autoregressive")
    run = greedy.run(jobs(greedy), "itself", Setting(4))
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


@pytest.mark.parametrize("how", ["raise", "nan"])
@pytest.mark.parametrize("policy", ["hedge", "ngram", "ucb1"])
@pytest.mark.parametrize("row", [0, 5])
def test_failing_drafters(home, how, policy, row):
    """A drafter that fails in mid-stream ends in an error that names it, or is left out: never in another text."""
    for on_fault in ("stop", "drop"):
        decoder = decoder_of(home, GREEDY, [*CERTAIN[:1], LAWS[6], *LAWS[2:3]], on_fault=on_fault)
        plain = decoder.run(jobs(decoder), "autoregressive")
        decoder.drafters[1] = Broken(decoder.drafters[1], how, row)
        if on_fault == "stop":
            with pytest.raises(DecodeError, match=r"drafter 'ngram'.*(out of paper|NaN)"):
                decoder.run(jobs(decoder), policy, Setting(3))
            continue
        run = decoder.run(jobs(decoder), policy, Setting(3), batch=2)
        same_texts(run, plain)
        assert any("ngram" in text.dropped for text in run.texts)


def test_processors_see_the_whole_text_once(home):
    """A repetition penalty, which depends on every token before, by the library's own greedy decoding."""
    from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

    penalty = RepetitionPenaltyLogitsProcessor(1.7)
    decoder = decoder_of(home, GREEDY, processors=(penalty,))
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
    wrong = CliRunner().invoke(app, ["decode", *where, "--prompt", "w3", "--policy", "nobody"])
    assert wrong.exit_code == 1
    assert "nobody" in wrong.stderr
