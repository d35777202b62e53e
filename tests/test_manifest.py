import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Dropped, Manifest, Shard
from hedgelab.storage.typed_json import load_strict, seal, to_document, unseal
from tests.strategies import a_manifest, json_values, manifests

SHARD = Shard("shard-00000.safetensors", 7, 2, "ab" * 32, 900, 1, (Dropped("p9", "NaN logits"),))


def document(**changes):
    return {**to_document(a_manifest(shards=(SHARD,))), **changes}


def problems_of(changed):
    """The problems of a document that was sealed properly, so that only its content can be at fault."""
    with pytest.raises(TraceError) as caught:
        Manifest.from_json(seal(changed))
    return list(caught.value.problems)


@given(manifests())
def test_round_trip(manifest):
    again = Manifest.from_json(manifest.to_json())
    assert again == manifest.checked()
    assert again.to_json() == manifest.checked().to_json()


def test_text_is_stable():
    """Sorted keys, one space of indent, trailing newline; and the seal is reproducible."""
    text = a_manifest().to_json()
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=1) + "\n"
    assert text == a_manifest().to_json()
    assert json.loads(text)["format_version"] == 1


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("name", "  ", "manifest.name: is '  '; allowed: not blank"),
        ("path", "sampled", "manifest.path: is 'sampled'; allowed: one of own_sample, greedy, given"),
        ("feedback", "half", "manifest.feedback: is 'half'; allowed: one of full, bandit"),
        ("k", 0, "manifest.k: is 0; allowed: in [1, 32767]"),
        ("k", True, "manifest.k: is true or false; allowed: an integer"),
        ("k", 3.0, "manifest.k: is a number; allowed: an integer"),
        ("vocabulary", 2**31 + 1, f"manifest.vocabulary: is {2**31 + 1}; allowed: in [1, {2**31}]"),
        ("tokenizer_sha256", "AB" * 32, "64 hexadecimal digits, or empty where nobody knows"),
        ("target", None, "manifest.target: is null; allowed: an object"),
        ("seed", -1, f"manifest.seed: is -1; allowed: in [0, {2**56 - 1}]"),
        ("seed", 2**56, "manifest.seed: is"),
        ("logits", 101, "manifest.logits: is 101; at most the vocabulary, 100"),
        ("domains", [], "manifest.domains: is empty; allowed: at least one"),
        ("domains", ["a", "b", "a"], "manifest.domains[2]: is 'a', which manifest.domains[0] is too"),
        ("domains", "code", "manifest.domains: is a string; allowed: a list"),
        ("drafters", [], "manifest.drafters: is empty; allowed: at least one"),
        ("complete", 1, "manifest.complete: is an integer; allowed: true or false"),
        ("versions", {"numpy": 2}, "manifest.versions.numpy: is an integer; allowed: a string"),
        ("settings", [], "manifest.settings: is a list; allowed: an object with string keys"),
        ("target_processing", {"temperature": 0, "top_k": 0, "top_p": 1}, "such a path is called greedy"),
        (
            "target_processing",
            {"temperature": -0.1, "top_k": 0, "top_p": 1},
            "temperature: is -0.1; allowed: at least 0",
        ),
        ("target_processing", {"temperature": 1, "top_k": 0, "top_p": 0}, "top_p: is 0; allowed: in (0, 1]"),
        ("target_processing", {"temperature": 1, "top_k": -1, "top_p": 1}, "top_k: is -1; allowed: at least 0"),
        ("path", "greedy", "manifest.target_processing.temperature: is 0.6; a greedy path has 0"),
        (
            "target_processing",
            {"temperature": True, "top_k": 0, "top_p": 1},
            "temperature: is true or false; allowed: a",
        ),
        ("encodings", {}, "manifest.encodings.alpha_flat: is None; allowed: one of float32, fixed16, bits"),
    ],
)
def test_a_field_out_of_order_is_named(field, value, problem):
    found = problems_of(document(**{field: value}))
    assert any(problem in line for line in found)
    assert all(line.startswith(f"manifest.{field}") or "drafters" in line or line == problem for line in found)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            ("encodings", "confidence"),
            "bits",
            "manifest.encodings.confidence: is 'bits'; allowed: one of float32, fixed16",
        ),
        (("encodings", "token"), "float32", "manifest.encodings.token: unknown column; allowed: confidence, "),
        (
            ("drafters", 1, "rule"),
            "chian",
            "manifest.drafters[1].rule: is 'chian'; allowed: one of chain, one_hot, tree",
        ),
        (("drafters", 2, "depth"), 2, "manifest.drafters[2].depth: is 2; allowed: 1 or k = 3"),
        (("drafters", 2, "name"), "lookup", "manifest.drafters[2].name: is 'lookup', which manifest.drafters[0].name"),
        (("drafters", 3, "model", "sha256"), "0", "manifest.drafters[3].model.sha256: is '0'; allowed: 64 hexadecimal"),
        (("shards", 0, "rows"), 1, "manifest.shards[0].rows: is 1, fewer than its 2 sequences"),
        (("shards", 0, "sequences"), 0, "manifest.shards[0].sequences: is 0, but there are 7 rows"),
        (("shards", 0, "sha256"), "", "manifest.shards[0].sha256: is ''; allowed: 64 hexadecimal digits"),
        (("shards", 0, "bytes"), -8, "manifest.shards[0].bytes: is -8; allowed: at least 8"),
        (("shards", 0, "dropped", 0, "reason"), "", "manifest.shards[0].dropped[0].reason: is ''; allowed: not blank"),
        *(
            (("shards", 0, "file"), name, f"manifest.shards[0].file: is {name!r}; allowed: 'shard-00000.safetensors'")
            for name in (
                "../shard-00000.safetensors",
                "/etc/passwd",
                "shard-00001.safetensors",
                "./shard-00000.safetensors",
                "shard-00000.safetensors\n",
                "",
            )
        ),
    ],
)
def test_a_nested_field_out_of_order_is_the_only_problem(path, value, problem):
    changed = document()
    entry = changed
    for step in path[:-1]:
        entry = entry[step]
    entry[path[-1]] = value
    (line,) = problems_of(changed)
    assert line.startswith(problem)


def places(value, at=(), path="manifest"):
    """Every field of every dataclass within a document."""
    if isinstance(value, dict) and path.rsplit(".", 1)[-1] not in ("settings", "details", "versions", "licenses"):
        for name, entry in value.items():
            if "encodings" not in path:
                yield (*at, name), f"{path}.{name}"
                yield from places(entry, (*at, name), f"{path}.{name}")
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            yield from places(entry, (*at, i), f"{path}[{i}]")


@pytest.mark.parametrize(
    ("at", "path"), [place for place in places(document()) if place[1] != "manifest.format_version"]
)
def test_no_field_may_be_missing(at, path):
    changed = json.loads(json.dumps(document()))
    entry = changed
    for step in at[:-1]:
        entry = entry[step]
    del entry[at[-1]]
    entry["new"] = 1
    assert problems_of(changed) == [path.rpartition(".")[0] + ".new: unknown field", f"{path}: missing"]


def test_all_faults_are_reported_at_once():
    changed = document(name="", k="five", seed=-1, colour="red")
    changed["drafters"][3]["rule"] = "guess"
    changed["drafters"][1]["processing"]["top_p"] = 2
    changed["drafters"][2] = 5
    changed["shards"][0]["file"] = "../../x"
    changed["encodings"]["alpha_deep"] = "float8"
    del changed["licenses"]
    text = seal(changed).replace(b'"feedback": "full"', b'"feedback": "fool"')  # and edited after it was sealed
    with pytest.raises(TraceError) as caught:
        Manifest.from_json(text)
    found = {line.split(":")[0] for line in caught.value.problems}
    assert found == {
        *("manifest.name", "manifest.k", "manifest.seed", "manifest.colour", "manifest.licenses", "manifest.feedback"),
        *("manifest.drafters[3].rule", "manifest.drafters[1].processing.top_p", "manifest.drafters[2]"),
        *("manifest.shards[0].file", "manifest.encodings.alpha_deep", "manifest.json"),
    }
    assert str(caught.value).count("\n") == len(caught.value.problems) - 1


@pytest.mark.parametrize("version", [0, 2, True, 1.0, "1", None])
def test_unknown_version_names_those_accepted(version):
    (line,) = problems_of(document(format_version=version))
    assert line == f"manifest.format_version: is {version!r}; this hedgelab reads 1"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "holds a list, not an object"),
        (b"null", "holds null, not an object"),
        (b'{"a": 1, "b": {"x": 1, "x": 1}}', "key 'x' appears twice"),
        (b'{"a": NaN}', "NaN is not a number that JSON knows"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "1e999 is not a number"),
        (b'{"a": "\\ud800"}', "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'\xef\xbb\xbf{"a": 1}', "not valid JSON"),
    ],
)
def test_what_is_not_plain_json_is_refused(raw, words):
    with pytest.raises(TraceError, match=words) as caught:
        Manifest.from_json(raw)
    assert caught.value.problems[0].startswith("manifest.json: ")


@pytest.mark.parametrize("depth", [100, 300, 500, 900])
def test_depth_of_settings(depth):
    """Nested settings are read or refused; which of the two depends on Python's stack, never a RecursionError."""
    text = '{"settings": {"a": ' + "[" * depth + "]" * depth + '}, "format_version": 1}'
    with pytest.raises(TraceError):
        Manifest.from_json(text)


def test_every_flipped_bit_breaks_the_seal():
    raw = a_manifest(shards=(SHARD,)).to_json().encode()
    rng = random.Random(0)
    for position in range(len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 1 << rng.randrange(8)
        with pytest.raises(TraceError, match="manifest"):
            Manifest.from_json(bytes(damaged))
    for damaged in (raw[:-1], raw + b"\n", raw.replace(b"\n", b"\r\n"), raw.replace(b' "seed"', b'  "seed"')):
        with pytest.raises(TraceError, match="manifest"):
            Manifest.from_json(damaged)


@settings(max_examples=200)
@given(st.data())
def test_any_json_in_any_place_is_read_or_refused(data):
    """Whatever stands in a field: a TraceError that names the field, or a manifest that says the same."""
    changed = json.loads(json.dumps(document()))
    at, path = data.draw(st.sampled_from(list(places(changed))))
    entry = changed
    for step in at[:-1]:
        entry = entry[step]
    entry[at[-1]] = data.draw(json_values)
    problems, manifest = (), None
    try:
        manifest = Manifest.from_json(seal(changed))
    except TraceError as error:
        problems = error.problems
    if manifest is None:
        related = {
            "manifest.k": "manifest.drafters",
            "manifest.path": "manifest.target_processing",
            "manifest.vocabulary": "manifest.logits",
            "sequences": "rows",
            "rows": "sequences",
        }
        ending = related.get(path, related.get(at[-1], path))
        assert problems
        assert all(line.startswith(path) or ending in line for line in problems)
    else:
        assert load_strict(json.dumps(to_document(manifest)).encode()) == load_strict(json.dumps(changed).encode())


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_seal_round_trip(document):
    document.pop("sha256", None)
    assert unseal(seal(document), "x") == (document, [])


def test_checked_makes_types_exact():
    manifest = a_manifest(target_processing=a_manifest().target_processing.__class__(1, 2, 1), settings={"a": (1, 2)})
    checked = manifest.checked()
    assert type(checked.target_processing.temperature) is float
    assert checked.settings == {"a": [1, 2]}
    assert checked.checked() == checked


def test_checked_names_what_json_cannot_hold():
    manifest = a_manifest(k=np.int64(3), settings={"a": [Path("x"), float("nan")], "b": {1: 2}})
    with pytest.raises(TraceError) as caught:
        manifest.checked()
    assert caught.value.problems == (
        "manifest.k: is a int64; allowed: an integer",
        "manifest.settings.a[0]: is a PosixPath; allowed: what JSON can hold",
        "manifest.settings.a[1]: is nan; allowed: a finite number",
        "manifest.settings.b: key 1 is not a string",
    )


def test_error_survives_pickling():
    error = pickle.loads(pickle.dumps(TraceError("a: 1", "b: 2")))
    assert error.problems == ("a: 1", "b: 2")
    assert str(error) == "a: 1\nb: 2"
