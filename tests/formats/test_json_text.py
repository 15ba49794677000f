"""JSON is read strictly: nothing is dropped in silence, and no text swells in memory."""

import pytest

from agent_eval.formats import json_text as jsontext
from agent_eval.formats.json_text import loads


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ('[{"b": {"a": 1, "\\u0061": 2}}]', "the key 'a' is given twice"),
        ('{"\\ud800": 1, "\\udfff": 2}', "is given twice"),
        ("9" * 5000, "the number 99999999999999999999… is too large"),
        ("1e999", "the number 1e999 is too large"),
        ("-Infinity", "-Infinity is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        loads(text)


def test_values_are_counted_and_commas_in_texts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsontext, "MOST_VALUES", 3)
    assert loads('["a,b,c,d,\\",e,f", 2, 3, 4]') == ['a,b,c,d,",e,f', 2, 3, 4]
    with pytest.raises(ValueError, match="more than 3 values"):
        loads("[1, 2, 3, 4, 5]")
