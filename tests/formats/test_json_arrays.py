"""Arrays are cut into their elements, whatever these hold and wherever the file is read in blocks."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.formats import json_arrays as arrays
from agent_eval.formats.json_arrays import TruncatedJsonError, iter_array_elements

json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='"\\[]{},: a', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def cut(content: bytes, *keys: str, longest: int = 1_000) -> list[bytes | None]:
    return list(iter_array_elements(io.BytesIO(content), keys, longest))


@given(values=st.lists(json_values, max_size=5), other=json_values, block=st.integers(1, 40))
def test_every_element_is_found_wherever_a_block_ends(values: list[Any], other: Any, block: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arrays, "BLOCK", block)
        document = json.dumps({"other": other, "wanted": values, "last": other}).encode()
        assert [json.loads(e or b"") for e in cut(document, "wanted", longest=10**6)] == values
        plain = json.dumps(values, indent=1).encode()
        assert [json.loads(e or b"") for e in cut(plain, longest=10**6)] == values


def test_an_element_that_is_no_json_stands_alone() -> None:
    assert cut(b"[1, NaN, {]}, x y,]") == [b"1", b" NaN", b" {]}", b" x y", b""]


def test_an_element_beyond_the_limit_is_not_held() -> None:
    assert cut(b'[1,"' + b"x" * 2_000 + b'",2]') == [b"1", None, b"2"]


def test_the_array_is_found_under_its_keys_only() -> None:
    assert cut(b'{"b": [0], "a": {"b": [1], "c": 2}}', "a", "b") == [b"1"]
    assert cut(b'{"a": {"b": 1}}', "a", "b") == []
    assert cut(b"[1]", "a") == cut(b'{"a": 1}') == []


@pytest.mark.parametrize(
    ("content", "found", "reason"),
    [
        (b"", 0, "expected a JSON array or object"),
        (b"nothing", 0, "expected a JSON array or object"),
        (b'[{"a": 1}', 1, "ends here"),
        (b'[{"a": 1}, {"b"', 1, "within an array or object"),
        (b'[{"a": 1}, "b', 1, "within a string"),
        (b"[1] [2]", 1, "content after the end"),
    ],
)
def test_where_a_file_breaks_off_what_came_before_is_given(content: bytes, found: int, reason: str) -> None:
    given_elements = iter_array_elements(io.BytesIO(content), (), 1_000)
    assert len([next(given_elements) for _ in range(found)]) == found
    with pytest.raises(TruncatedJsonError, match=reason):
        next(given_elements)


def test_a_second_array_under_one_key_is_named() -> None:
    given_elements = iter_array_elements(io.BytesIO(b'{"a": [1], "a": [2]}'), ("a",), 1_000)
    assert next(given_elements) == b"1"
    with pytest.raises(TruncatedJsonError, match="'a' occurs twice"):
        next(given_elements)
