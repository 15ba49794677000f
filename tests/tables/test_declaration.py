"""Declarations of tables: an invalid line is refused with its number and the fix, whatever is wrong in it."""

import re
from pathlib import Path

import pytest

import agent_eval.tables.schema
from agent_eval.errors import ConfigurationError
from agent_eval.tables.declaration import read_declarations
from agent_eval.tables.schema import MADE_FROM, SOURCES

TEXT = Path(agent_eval.tables.schema.__file__).with_name("tables.txt").read_text(encoding="utf-8")
FRUIT = """group price | what it costs
    price_usd float | Price, US dollars

table fruit | one row per fruit
    key name
    with price
    name text! | Name
    severity SEVERITY | Severity
    seen_at list[time]! is_content=false | Times
"""


def test_a_declaration_has_its_columns_in_order_with_types_and_fields() -> None:
    columns = read_declarations(FRUIT, "f")["fruit"].table().columns
    assert [c.name for c in columns] == ["price_usd", "name", "severity", "seen_at"]
    assert [c.nullable for c in columns] == [True, False, True, False]
    assert [c.is_content for c in columns] == [True, True, True, False]


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        (7, "    name txt | Name", "line 7: 'txt' is not a type. Did you mean 'text'?"),
        (7, "    name list[txt] | Name", "line 7: 'txt' is not a type. Did you mean 'text'?"),
        (7, "    name text", "line 7: 'name' is not a directive; a column needs ` | ` and a meaning. Allowed: key"),
        (7, "    name text | ", "line 7: a column needs a name, a type and a meaning"),
        (7, "    name text rank=severity | Name", "line 7: 'rank=severity' is not a field. Allowed: rank_of"),
        (7, "    price_usd text | Name", "line 7: 'fruit' has column 'price_usd' already"),
        (6, "    with prices", "line 6: 'prices' is not a group above, or column of one. Did you mean 'price'?"),
        (5, "", "line 4: 'fruit' has no columns or no key"),
        (5, "    key nam", "line 4: 'nam' is not a column of 'fruit'. Did you mean 'name'?"),
        (5, "    key name\n    key name", "line 6: `key` occurs once in a table"),
        (2, "    key price_usd", "line 2: `key` occurs once in a table, and in no group"),
        (8, "    rank int rank_of=nam | Rank", "line 4: 'nam' is not a column of 'fruit'. Did you mean 'name'?"),
        (8, "    rank int rank_of=name | Rank", "line 4: 'rank' ranks 'name', which has no vocabulary"),
        (8, "    parent fruits name", "line 4: 'fruits' is not a table. Did you mean 'fruit'?"),
        (8, "    reads later\ntable later | rows\n    key a\n    reads source\n    a text | A", "'later', which is declared below"),
        (1, "group g | g\n    price int | P\ngroup price | g", "line 3: a group has a column 'price'"),
        (4, "table price | rows", "line 4: 'price' is declared already"),
        (4, "tabel fruit | rows", "line 4: 'tabel fruit | rows' begins no group or table"),
        (1, "", "line 2: There is no group or table above"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_refused_by_number_with_the_fix(line: int, instead: str, message: str) -> None:
    lines = FRUIT.splitlines()
    lines[line - 1] = instead
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        read_declarations("\n".join(lines), "tables.txt")
    assert str(caught.value).startswith("tables.txt, line ")


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"^(    \w+ )\S+(.* \| )", r"\1typo\2"),  # an unknown type
        (r"^(    \w+ \S+.*) \| .*", r"\1"),  # no meaning
        (r"^    with (\w+)", r"    with \1s_"),  # an unknown group or column
        (r"^    (key|partition|parent|reads|with) ", r"    \1s "),  # an unknown directive
        (r"^(table|group) (\w+) \| .*", r"\1 \2"),  # no grain
        (r"^    (key|partition) ", r"    \1 typo "),  # a column that the table does not have
    ],
)
def test_no_slip_in_the_declared_tables_goes_unnoticed(pattern: str, instead: str) -> None:
    lines = TEXT.splitlines()
    places = [i for i, line in enumerate(lines) if re.search(pattern, line)]
    assert len(places) > 20
    for i in places[:: len(places) // 12]:
        changed = [*lines[:i], re.sub(pattern, instead, lines[i]), *lines[i + 1 :]]
        with pytest.raises(ConfigurationError, match=r"tables.txt, line \d+: ") as caught:
            read_declarations("\n".join(changed), "tables.txt")
        number = int(re.findall(r"line (\d+)", str(caught.value))[0])
        table = max(j for j, line in enumerate(lines[: i + 1]) if re.match("table|group", line))
        assert number in (i + 1, table + 1), caught.value


def test_a_table_reads_sources_and_tables_above_it() -> None:
    above = {*SOURCES}
    for name, parents in MADE_FROM.items():
        assert above >= {*parents}, name
        above.add(name)
