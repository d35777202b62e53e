"""Conversations of two turns: what the second one reads, that it is recorded as any text is, and what is dropped."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hedgelab as hl
from hedgelab.comparison import compare
from hedgelab.regret import bootstrap_counts, student_quantile
from hedgelab.trace import open_trace
from tests.strategies_recording import WORDS, tiny_checkpoint
from tests.test_collect import LOOKUP, assert_agrees, config_of, contents, poison, slow_run, text_of
from traces import collect as collecting
from traces.collect import Clock, Job, collect, jobs_of, record
from traces.config import ConfigError, parse_config
from traces.prompts import Prompt, Turn, switching, write
from traces.targets import TargetError, load_target

OPEN = "{% for m in messages %}{{ m['content'] }} {% endfor %}"  # nothing closes a turn
CLOSED = (
    "{% for m in messages %}w2 {{ m['content'] }} <end> w3 {% endfor %}{% if add_generation_prompt %}w2 {% endif %}"
)
DRAFTERS = [
    *LOOKUP,
    {"name": "exit", "kind": "exit", "options": {"layer": 2}},
    {"name": "small", "kind": "causal", "options": {"model": "small"}},
]
HOT = {"temperature": 4.0}  # some texts end with EOS, some at the limit
WARM = {"temperature": 0.9}


def with_template(target, template):
    """The same target under another chat template."""
    target.tokenizer.chat_template = template
    return target


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with two targets, one whose turns are closed by EOS, a small model, and conversations."""
    folder = tmp_path_factory.mktemp("conversations")
    for name in ("target", "closed"):
        tiny_checkpoint(folder / name)
    tiny_checkpoint(folder / "small", seed=3, layers=2)
    with_template(load_target(str(folder / "closed")), CLOSED).tokenizer.save_pretrained(folder / "closed")
    rng = np.random.default_rng(8)

    def turn(domain):
        return Turn(domain, (("user", " ".join(f"w{w}" for w in rng.integers(2, WORDS, rng.integers(1, 8)))),))

    made = []
    for i in range(7):
        first, second = turn("ab"[i % 2]), turn("bc"[i % 2])
        made.append(Prompt(f"talk{i}", first.domain, first.messages, "", second))
    write(made, folder / "talks.jsonl")
    alone = [Prompt(f"alone{i}", "a", turn("a").messages) for i in range(3)]
    write([*made[:3], *alone], folder / "mixed.jsonl")
    return folder


def recording(home, target="target", how=HOT, prompts="talks.jsonl", **changes):
    config = config_of(home, how, WARM, **{"drafters": DRAFTERS, "prompts": {"file": prompts}, "batch": 3, **changes})
    return dataclasses.replace(config, target=str(home / target))


# --- ids between two answers ---------------------------------------------------------------------------------------

words = st.lists(st.sampled_from([f"w{i}" for i in range(2, 12)]), min_size=1, max_size=4).map(" ".join)
marks = st.sampled_from(["", "w4 ", "w4 w5 ", "<end> ", "w6 <end> w7 "])


@pytest.fixture(scope="module")
def loaded(home):
    """A target whose chat template tests may change."""
    return load_target(str(home / "target"))


@settings(max_examples=60)
@given(st.lists(words, min_size=1, max_size=3), words, words, marks, marks, marks)
def test_ids_between_answers_are_those_of_the_whole_conversation(loaded, asked, answer, then, before, after, opening):
    template = (
        f"{{% for m in messages %}}{before}{{{{ m['content'] }}}} {after}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{opening}{{% endif %}}"
    )
    if opening != before:  # an answer in a conversation stands behind what opened it
        template = template.replace("{% for m in messages %}" + before, "{% for m in messages %}" + opening)
    target = with_template(loaded, template)
    messages = [{"role": "user", "content": text} for text in asked]
    second = [{"role": "user", "content": then}]
    cut, closed = target.encode_between(messages, second)
    first, said = target.encode_chat(messages), target.tokenizer(answer)["input_ids"]
    whole = target.encode_chat([*messages, {"role": "assistant", "content": answer}, *second])
    assert [*first, *said, *cut] == whole
    if "<end>" in after:  # an EOS of the answer's own stands for the template's
        assert closed == cut[target.tokenizer(after)["input_ids"].index(0) + 1 :]
        assert cut[: len(cut) - len(closed)].count(0) == 1
    else:
        assert closed == cut


def test_ids_between_answers_of_the_packaged_target():
    target = load_target("smollm2-135m")
    messages = [{"role": "user", "content": "Answer me: which river? Answerx"}]
    then = [{"role": "user", "content": "And the Answer to\n\nthis? "}]
    cut, closed = target.encode_between(messages, then)
    end = "<|im_end|>"
    assert (
        target.tokenizer.decode(cut) == f"{end}\n<|im_start|>user\n{then[0]['content']}{end}\n<|im_start|>assistant\n"
    )
    assert closed == cut[1:]
    said = target.tokenizer("The Nile.\n\n")["input_ids"]
    whole = [*messages, {"role": "assistant", "content": "The Nile.\n\n"}, *then]
    assert [*target.encode_chat(messages), *said, *cut] == target.encode_chat(whole)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages if m['role'] == 'user' %}{{ m['content'] }} {% endfor %}", "answer 0 times, not once"),
        ("{% for m in messages %}{{ m['content'] }} {{ m['content'] }} {% endfor %}", "answer 2 times, not once"),
        ("w{{ messages | length }} " + OPEN, "ids of a first prompt are others once it is answered"),
        (OPEN + "{% if messages | length > 1 %}{{ raise_exception('one turn only') }}{% endif %}", "one turn only"),
    ],
)
def test_templates_without_a_second_turn_are_refused(loaded, template, reason):
    target = with_template(loaded, template)
    message = [{"role": "user", "content": "w3 w4"}]
    with pytest.raises(TargetError, match=f"'target': .*{reason}"):
        target.encode_between(message, message)


def test_a_tokenizer_that_merges_an_answer_with_what_follows_is_refused(loaded):
    class Pairs:
        """Two characters an id."""

        chat_template = None

        def __call__(self, text, add_special_tokens):
            return {"input_ids": [sum(map(ord, text[i : i + 2])) for i in range(0, len(text), 2)]}

    target = dataclasses.replace(loaded, tokenizer=Pairs())
    with pytest.raises(TargetError, match="tokenizer merges the end of an answer"):
        target.encode_between([{"role": "user", "content": "odd"}], [{"role": "user", "content": "q"}])


# --- the second text -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["target", "closed"])
def test_the_second_prompt_is_the_conversation_as_it_was_sampled(home, tmp_path, target):
    config = recording(home, target, max_new_tokens=30)
    summary = collect(config, {}, tmp_path / "t")
    trace, tokenizer = open_trace(tmp_path / "t"), load_target(config.target).tokenizer
    assert trace.check() == []
    assert trace.manifest.domains == ("a", "b", "c")
    assert summary.sequences == trace.sequences == 14 - len(summary.dropped)
    place = {int(name): s for s, name in enumerate(trace.sequence_id)}
    assert list(place) == sorted(place)
    talks = {prompt.id: prompt for prompt in collecting.read(home / "talks.jsonl")}
    ends = set()
    for s in [s for name, s in place.items() if name % 2 and name - 1 in place]:
        talk = talks[str(trace.prompt_ids[s]).removesuffix("/1")]
        assert [str(name) for name in trace.prompt_ids[s - 1 : s + 1]] == [f"{talk.id}/0", f"{talk.id}/1"]
        assert list(trace.domains[s - 1 : s + 1]) == [talk.domain, talk.then.domain]
        first, answer = text_of(trace, s - 1)
        second, _ = text_of(trace, s)
        assert second[: len(first) + len(answer)] == first + answer
        asked = talk.then.messages[0][1]
        seam = tokenizer.decode(second[len(first) + len(answer) :]).split()
        closing = [] if target == "target" else ["w3", "w2"] if answer[-1] == 0 else ["<end>", "w3", "w2"]
        opening = [] if target == "target" else ["<end>", "w3", "w2"]
        assert seam == [*closing, *asked.split(), *opening]
        ends.add(answer[-1] == 0)
    assert ends == {True, False}


@pytest.mark.parametrize("target", ["target", "closed"])
def test_a_slow_run_agrees_on_both_turns(home, tmp_path, target):
    how, drafter = {"temperature": 0.8}, {"temperature": 1.2}
    config = config_of(
        home, how, drafter, drafters=DRAFTERS, max_new_tokens=12, prompts={"file": "mixed.jsonl"}, batch=4
    )
    collect(dataclasses.replace(config, target=str(home / target)), {}, tmp_path / "t")
    big, small = load_target(str(home / target)), load_target(str(home / "small"))
    trace = open_trace(tmp_path / "t")
    assert sum(name % 2 for name in trace.sequence_id) >= 3
    assert_agrees(trace, slow_run(trace, big, [2, small], 3, 1, how, drafter), 60)


def test_a_second_turn_is_recorded_as_the_same_prefix_in_one_turn(home):
    config = recording(home, how={"temperature": 0.8}, batch=7)
    target = load_target(config.target)
    jobs, domains = jobs_of(config, target)
    both = record(jobs, domains, target, collecting.build_drafters(config, target), config, Clock()).arrays
    seconds = [s for s, name in enumerate(both["sequence_id"]) if name % 2]
    cut = both["prompt_offsets"]
    alone = [
        Job(
            int(both["sequence_id"][s]),
            Prompt("x", domains[both["domain"][s]], (("user", ""),)),
            tuple(both["prompt_token"][cut[s] : cut[s + 1]].tolist()),
        )
        for s in seconds
    ]
    one = record(alone, domains, target, collecting.build_drafters(config, target), config, Clock()).arrays
    rows = np.concatenate([np.arange(*both["offsets"][s : s + 2]) for s in seconds])
    assert len(rows) > 80
    for name in ("token", "alpha_deep", "proposed", "match_length"):
        np.testing.assert_array_equal(both[name][rows], one[name])
    for name in ("alpha_flat", "gamma_flat", "gamma_deep", "target_logprob", "confidence"):
        np.testing.assert_allclose(both[name][rows], one[name], atol=1e-4)
    for name in ("sequence_id", "domain", "first_token", "stop", "prompt_sha256"):
        np.testing.assert_array_equal(both[name][seconds], one[name])


def test_single_turns_stay_among_conversations(home, tmp_path):
    config = recording(home, prompts="mixed.jsonl", logits=5, max_new_tokens=9, batch=5)
    config = dataclasses.replace(config, prompts=dataclasses.replace(config.prompts, samples=2))
    seen = []
    summary = collect(
        config, {}, tmp_path / "t", progress=lambda done, total, now: seen.append((done, total, now.rows))
    )
    trace = open_trace(tmp_path / "t")
    assert trace.check() == []
    # 3 conversations and 3 prompts, twice each: 18 texts in shards of 5 prompts
    assert sum(shard.sequences + len(shard.dropped) for shard in trace.manifest.shards) == 18
    assert seen[-1] == (18, 18, summary.rows)
    assert {total for _, total, _ in seen} == {18}
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert [rows for _, _, rows in seen] == sorted(rows for _, _, rows in seen)
    names = [str(name) for name in trace.prompt_ids]
    assert {name for name in names if "talk" not in name} == {"alone0", "alone1", "alone2"}
    both = [i for i, name in enumerate(names) if name.endswith("/1")]
    assert [names[i - 1] for i in both] == [names[i].replace("/1", "/0") for i in both]


# --- dropped and interrupted ---------------------------------------------------------------------------------------


def test_a_dropped_first_answer_takes_its_second_along(home, tmp_path, monkeypatch):
    config = recording(home, how=WARM, batch=7)
    clean = collect(config, {}, tmp_path / "clean")
    whole = open_trace(tmp_path / "clean")
    loaded = load_target(config.target)
    monkeypatch.setattr(collecting, "load_target", lambda *args: loaded)
    hook = poison(loaded.model, 3, 1, float("nan"))
    summary = collect(config, {}, tmp_path / "t")
    hook.remove()
    name = str(whole.prompt_ids[2]).removesuffix("/0")  # the conversation in row 1
    assert [drop.prompt_id for drop in summary.dropped] == [f"{name}/0", f"{name}/1"]
    assert "NaN at row 2" in summary.dropped[0].reason
    assert summary.dropped[1].reason == f"no first answer to follow: {name}/0 was dropped"
    trace = open_trace(tmp_path / "t")
    assert trace.manifest.shards[0].dropped == tuple(summary.dropped)
    assert summary.sequences == clean.sequences - 2
    others = [s for s in range(whole.sequences) if not str(whole.prompt_ids[s]).startswith(name)]
    np.testing.assert_array_equal(trace.token, whole.select(others).token)


def test_a_first_answer_without_a_row_takes_its_second_along(home, tmp_path, monkeypatch):
    config = recording(home, how=WARM, batch=7)
    loaded = load_target(config.target)
    monkeypatch.setattr(collecting, "load_target", lambda *args: loaded)
    seen = []

    def end(module, inputs, output):
        if not seen:
            output.logits[0, :, 0] = 1e4  # EOS, at once
        seen.append(0)

    hook = loaded.model.register_forward_hook(end)
    summary = collect(config, {}, tmp_path / "t")
    hook.remove()
    first, second = summary.dropped
    assert "no row: its text ended with the first token (eos)" in first.reason
    assert first.prompt_id.endswith("/0")
    assert second.prompt_id == first.prompt_id.replace("/0", "/1")
    assert "no first answer" in second.reason


def test_a_second_turn_that_does_not_fit_is_dropped_alone(home, tmp_path):
    text = " ".join(["w7"] * 40)
    talk = Prompt("long", "a", (("user", "w3"),), "", Turn("b", (("user", text),)))
    write([talk], home / "long.jsonl")
    summary = collect(recording(home, prompts="long.jsonl", how=WARM, max_new_tokens=60), {}, tmp_path / "t")
    assert [drop.prompt_id for drop in summary.dropped] == ["long/1"]
    assert "leaves no room in the context of 96" in summary.dropped[0].reason
    assert list(open_trace(tmp_path / "t").prompt_ids) == ["long/0"]


@pytest.mark.parametrize("stop", [3, 11, 14, 25, 40, 52])
def test_resuming_equals_an_uninterrupted_recording(home, tmp_path, monkeypatch, stop):
    """Interrupted in first and second passes of shards; the rows of the uninterrupted recording are counted."""
    config = recording(home, max_new_tokens=11)
    rows, real = [0], collecting.Batch.row

    def row(self, t):
        rows[0] += 1
        if rows[0] == stop:
            raise KeyboardInterrupt
        real(self, t)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        collect(config, {}, tmp_path / "whole")
        with monkeypatch.context() as patch:
            patch.setattr(collecting.Batch, "row", row)
            with pytest.raises(KeyboardInterrupt):
                collect(config, {}, tmp_path / "stopped")
        seen = []
        collect(
            config, {}, tmp_path / "stopped", resume=True, progress=lambda done, total, now: seen.append((done, total))
        )
    finally:
        torch.set_num_threads(threads)
    assert seen[-1] == (14, 14)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_resuming_with_another_second_turn_is_refused(home, tmp_path):
    lines = (home / "talks.jsonl").read_text().splitlines()
    (home / "changing.jsonl").write_text("\n".join(lines))
    config = recording(home, prompts="changing.jsonl", max_new_tokens=5)
    collect(config, {}, tmp_path / "t")
    changed = json.loads(lines[0])
    changed["then"]["messages"][0]["content"] += " w9"
    (home / "changing.jsonl").write_text("\n".join([json.dumps(changed), *lines[1:]]))
    with pytest.raises(ValueError, match="jobs_sha256"):
        collect(config, {}, tmp_path / "t", resume=True)


# --- configurations ------------------------------------------------------------------------------------------------


def test_the_built_in_conversations_become_jobs(home):
    target = load_target(str(home / "target"))
    domains = ("sql", "math", "general")
    config = recording(home, prompts=None)
    config = dataclasses.replace(
        config, prompts=dataclasses.replace(config.prompts, file=None, split="switching", count=9, domains=domains)
    )
    jobs, names = jobs_of(config, target)
    assert names == domains
    assert [job.sequence_id for job in jobs] == list(range(0, 18, 2))
    assert [job.prompt.domain for job in jobs] == [name for name in domains for _ in range(3)]
    assert {job.prompt.id for job in jobs} == {f"{talk.id}/0" for talk in switching(domains, 9)}
    assert {job.then.prompt.id for job in jobs} == {f"{talk.id}/1" for talk in switching(domains, 9)}
    few = dataclasses.replace(config, prompts=dataclasses.replace(config.prompts, count=1))
    assert jobs_of(few, target)[1] == ("sql", "math")


def test_domains_choose_conversations_by_both_turns(home):
    target = load_target(str(home / "target"))

    def chosen(domains):
        config = recording(home)
        jobs, names = jobs_of(
            dataclasses.replace(config, prompts=dataclasses.replace(config.prompts, domains=domains)), target
        )
        return [job.prompt.id for job in jobs], names

    assert chosen(())[1] == ("a", "b", "c")
    ids, names = chosen(("a", "b"))
    assert sorted(ids) == ["talk0/0", "talk2/0", "talk4/0", "talk6/0"]
    assert names == ("a", "b")
    with pytest.raises(ConfigError, match="domain 'a' has 0, 1 were asked for"):
        chosen(("a", "c"))


def test_configurations_of_conversations_are_checked():
    with pytest.raises(ConfigError) as caught:
        parse_config(
            {
                "name": "x", "processing": {"temperature": 1}, "drafters": [],
                "prompts": {"split": "switching", "domains": ["sql"], "count_of": {"sql": 3}},
            }
        )  # fmt: skip
    assert "config.prompts.domains: is 'sql' alone" in str(caught.value)
    assert "config.prompts.count_of: is given" in str(caught.value)


# --- statistics ----------------------------------------------------------------------------------------------------


def test_the_turns_of_a_conversation_are_one_observation(home, tmp_path):
    collect(recording(home, how=WARM, prompts="mixed.jsonl"), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    names, labels = trace.prompt_ids.tolist(), trace.conversations.tolist()
    assert sum(name.endswith("/1") for name in names) == 3
    assert labels == [name[:-1] + "0" if name.endswith("/1") else name for name in names]
    order = np.random.default_rng(1).permutation(trace.sequences)
    assert trace.select(order).conversations.tolist() == [labels[s] for s in order]
    assert [home for home, name in zip(trace.home_domains, names, strict=True) if name == "talk1/1"] == ["b"]
    # an answer without its question stands alone
    lonely = trace.select([s for s, name in enumerate(names) if name == "talk1/1"])
    assert lonely.conversations.tolist() == ["talk1/1"]
    assert lonely.home_domains.tolist() == lonely.domains.tolist()
    few = trace.few_prompts(1).prompt_ids.tolist()
    assert len({name[: name.rindex("/")] if "/" in name else name for name in few}) == 2  # one of each home: a, b
    assert {name.replace("/0", "/1") for name in few} | {name.replace("/1", "/0") for name in few} == set(few)


def test_effects_of_one_conversation_add_before_they_are_squared(home, tmp_path):
    collect(recording(home, how=WARM), {}, tmp_path / "t")
    matrix = hl.acceptance_matrix(open_trace(tmp_path / "t"))
    assert sum(matrix.prompts) == 14  # two turns of each of seven
    weights = np.zeros_like(matrix.mat.estimate)
    weights[1] = (0.5, 0.3, 0.2)
    sums = {}
    for d, (rows, effects) in enumerate(zip(matrix.mat.observation, matrix.mat.effects, strict=True)):
        for name, effect in zip(rows.tolist(), effects[:, 1], strict=True):
            sums[name] = sums.get(name, 0.0) + weights[1, d] * effect
    assert len(sums) == 7
    variances = [w**2 * (effects[:, 1] ** 2).sum() for w, effects in zip(weights[1], matrix.mat.effects, strict=True)]
    counts = [len(effects) for effects in matrix.mat.effects]
    degrees = sum(variances) ** 2 / sum(v**2 / (n - 1) for v, n in zip(variances, counts, strict=True))
    half = student_quantile(round(degrees, 6)) * np.sqrt(sum(total**2 for total in sums.values()))
    interval = matrix.mat.contrast(weights)
    assert interval.high - interval.low == pytest.approx(2 * half)


def test_pooled_intervals_draw_conversations_whole(home, tmp_path):
    """With both turns equal the spread of a pooled mean is that of one turn's, not smaller by the square root of 2."""
    collect(recording(home, how=WARM), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    counts = bootstrap_counts(trace.conversations, strata=trace.home_domains, resamples=200, seed=0)
    first = {name: s for s, name in enumerate(trace.prompt_ids)}
    for name, s in first.items():
        if name.endswith("/1"):
            assert (counts[:, s] == counts[:, first[name[:-1] + "0"]]).all()
    table = compare(trace, [hl.learner("uniform")], k=2, replicates=1).summary()
    assert table["all domains"]["uniform"]["mat"].low < table["all domains"]["uniform"]["mat"].high
