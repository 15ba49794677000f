"""Python dicts in text: what is read, and what stays text."""

import warnings

import pytest

from agent_eval.formats.python_literal import LONGEST, read_dict


def test_a_python_dict_is_read_as_the_json_that_it_stands_for() -> None:
    text = " {'a': True, 'b': None, 'c': (1, [2.5]), \"d\": {'e': 'it\\'s'}} "
    assert read_dict(text) == {"a": True, "b": None, "c": [1, [2.5]], "d": {"e": "it's"}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x: 1",
        "{x: 1}",
        "[1]",
        "'text'",
        "{1, 2}",
        "{1: 2}",
        "{'a': {1}}",
        "{'a': b'x'}",
        "{'a': 1e999}",
        "{'a': 1j}",
        "{'a': print(1)}",
        "{'a': 1, 'a': 2}",
        "{'o': {'a': 1, 'a': 2}}",
        "{**{'a': 1}}",
        "{'a': " + "[" * 10_000 + "]" * 10_000 + "}",
        "{'a': '" + "x" * LONGEST + "'}",
        "{'a': " + "9" * 5_000 + "}",
        "{'a': 1\x00}",
    ],
)
def test_anything_else_is_not_read(text: str) -> None:
    assert read_dict(text) is None


def test_half_a_surrogate_pair_and_a_doubtful_escape_do_no_harm() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_dict(r"{'a': '\ud800', 'b': '\d'}") == {"a": "�", "b": r"\d"}
