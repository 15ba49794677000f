import datetime

import pytest
import yaml

from agent_eval.formats.yaml import (
    DEEPEST,
    MOST_VALUES,
    Scalars,
    YamlError,
    compose,
    construct,
    read_document,
)

BOTH = pytest.mark.parametrize("scalars", ["typed", "text"])


def value(text: str, scalars: Scalars) -> object:
    node = compose(text)
    assert node is not None
    return construct(node, scalars)


def refused(text: str, scalars: Scalars = "typed", *, allow_aliases: bool = False) -> str:
    with pytest.raises(YamlError) as caught:
        read_document(text, scalars, allow_aliases=allow_aliases)
    return f"{caught.value.line}: {caught.value.reason}"


SCALARS = "{a: 0.40, b: 2026-05-01, c: yes, d: '5', e: null, 5: 0x10}"


def test_typed_scalars_are_values_of_yamls_types() -> None:
    typed = {"a": 0.4, "b": datetime.date(2026, 5, 1), "c": True, "d": "5", "e": None, 5: 16}
    assert value(SCALARS, "typed") == typed == yaml.safe_load(SCALARS)


def test_text_scalars_stay_as_they_are_written() -> None:
    as_written = {"a": "0.40", "b": "2026-05-01", "c": "yes", "d": "5", "e": None, "5": "0x10"}
    assert value(SCALARS, "text") == as_written


@BOTH
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\nb: 2\na: 3", "3: the key a is given twice (first in line 1); remove one"),
        ("a: 1\n<<: {b: 2}", "2: merge keys (<<) are not supported; write the keys out"),
        ("a: 1\n[b]: 2", "2: a key must be a plain text"),
        ("a: 1\nb: !!set {c}", "2: the tag 'tag:yaml.org,2002:set' is not supported; write a plain value"),
        ("a: 1\n---\nb: 2", "2: holds a second document; write one per file"),
        ("a: &a 1\nb: *a", "2: aliases (*name) are not supported; write the value out"),
        ("a: 1\nb: ]", "2: not YAML: "),
        ("[" * (DEEPEST + 1), f"1: nested deeper than {DEEPEST} levels"),
        ("[" + "1," * MOST_VALUES + "]", f"1: more than {MOST_VALUES:,} values"),
        ("a: " + "x" * 4_000_001, "1: more than 4,000,000 characters"),
    ],
    ids=["repeated", "merge", "list as key", "tag", "second", "alias", "syntax", "deep", "many", "long"],
)
def test_what_is_refused_does_not_depend_on_how_scalars_are_read(
    text: str, reason: str, scalars: Scalars
) -> None:
    assert refused(text, scalars).startswith(reason)


@BOTH
def test_the_deepest_nesting_that_is_allowed_is_read(scalars: Scalars) -> None:
    assert value("[" * DEEPEST + "]" * DEEPEST, scalars) == yaml.safe_load("[" * DEEPEST + "]" * DEEPEST)


def test_keys_that_are_written_otherwise_and_mean_the_same_are_one_key_where_scalars_are_typed() -> None:
    assert refused("16: a\n0x10: b") == "2: the key 0x10 is given twice; remove one"
    assert value("16: a\n0x10: b", "text") == {"16": "a", "0x10": "b"}


def test_a_typed_scalar_may_have_a_tag_of_yamls_own_and_no_other() -> None:
    assert value("!!str 1.10", "typed") == "1.10"
    assert "not supported" in refused("a: !!python/object:os.system x")
    assert "not supported" in refused("a: !!str 1.10", "text")


def test_texts_that_aliases_repeat_are_counted_by_their_letters() -> None:
    letters = "x" * 1_000
    few, many = (f"a: &a {letters}\nb: [{', '.join(['*a'] * n)}]" for n in (3_000, 5_000))
    assert read_document(few, "text", allow_aliases=True).value == yaml.safe_load(few)
    why = "2: more than 4,000,000 characters after its aliases are expanded"
    assert refused(many, "text", allow_aliases=True) == why


@BOTH
def test_aliases_of_aliases_are_read_with_the_lines_where_they_stand(scalars: Scalars) -> None:
    text = "a: &a {x: y}\nb: &b [*a, *a]\nc:\n  - *b\n  - z\n"
    document = read_document(text, scalars, allow_aliases=True)
    assert document.value == yaml.safe_load(text)
    places = {("a", "x"): 1, ("c",): 3, ("c", 0): 4, ("c", 0, 1, "x"): 4, ("c", 1): 5, ("d",): 1}
    assert {place: document.line_of(place) for place in places} == places


def test_an_alias_of_what_holds_it_is_refused() -> None:
    assert refused("a: &a [*a]", allow_aliases=True) == "1: the alias *a has no finished anchor before it"
