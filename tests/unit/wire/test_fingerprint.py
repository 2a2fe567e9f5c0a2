"""Identity: contents count, names and order do not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.fingerprint import canonical_config, fingerprint, model_key, slug, weights_id
from blockswarm_wire.record import block_key, parse_block_key

_CONFIG = {"model_type": "llama", "hidden_size": 64, "rope": {"theta": 1e4}}
_SHA = "ab" * 32


def test_labels_are_not_identity() -> None:
    labelled = {
        **_CONFIG,
        "_name_or_path": "/a/b",
        "transformers_version": "5",
        "dtype": "x",
        "torch_dtype": "y",
    }
    assert fingerprint(labelled, _SHA, "float32") == fingerprint(_CONFIG, _SHA, "float32")
    assert json.loads(canonical_config(labelled)) == _CONFIG


def test_contents_are_identity() -> None:
    values = {
        fingerprint(_CONFIG, _SHA, "float32"),
        fingerprint({**_CONFIG, "hidden_size": 65}, _SHA, "float32"),
        fingerprint(_CONFIG, "cd" * 32, "float32"),
        fingerprint(_CONFIG, _SHA, "bfloat16"),
    }
    assert len(values) == 4


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=6), _json, max_size=5), st.randoms())
def test_order_is_not_identity(config: dict[str, object], random: object) -> None:
    items = list(config.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert canonical_config(dict(items)) == canonical_config(config)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.integers(0, 2**256 - 1).map(lambda n: f"{n:064x}"),
        min_size=1,
        max_size=4,
    )
)
def test_weights_id_counts_names_and_contents(files: dict[str, str]) -> None:
    whole = weights_id(files)
    assert whole == weights_id(dict(reversed(files.items())))
    name = next(iter(files))
    assert whole != weights_id({**files, name: "f" * 64 if files[name] != "f" * 64 else "0" * 64})
    assert whole != weights_id({**files, name + "x": files[name]})


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (lambda: weights_id({}), "no .safetensors"),
        (lambda: weights_id({"a": "AB" * 32}), "lower-case hex"),
        (lambda: fingerprint(_CONFIG, _SHA, "float8"), "float8"),
        (lambda: fingerprint(_CONFIG, _SHA, "float32", "int3"), "int3"),
        (lambda: model_key("demo", "xyz"), "64 lower-case hex"),
    ],
)
def test_bad_parts_are_named(what: object, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        what()  # type: ignore[operator]


@given(st.text(max_size=80))
def test_any_name_gives_a_valid_key(name: str) -> None:
    key = model_key(name, _SHA)
    assert key == f"{slug(name)}-abababab"
    assert parse_block_key(block_key(key, 3)) == (key, 3)
