"""Every declared column, by walking the tables: what an addition has to bring."""

import re
from pathlib import Path

import polars as pl
import pytest

import agent_eval
from agent_eval.tables import TABLES, Table

PACKAGE = Path(agent_eval.__file__).parent
DERIVED = re.compile("^(old|new|baseline)_|_(low|high|worst|best|of_judge|labels_drawn|labels_own)$")
"""What is added to the name of a column in the code."""
NUMBERED = re.compile(r"[ud]\d(_c\d)?")
"""Ratings and criteria, whose names the code counts out."""
UNIT = re.compile(
    r"\d–\d|\d to \d|-1|0to100|\bat most 1\b|0/1|\b0 or\b|\b1 if\b|%|×|\bper |dollar|\bpoints?\b|seconds|hours|days|tokens"
    r"|\bshare\b|\bscale\b|\bunits\b|\bfactor\b|\bnumber of\b|reward|answers|the value\b",
    re.IGNORECASE,
)
every_table = pytest.mark.parametrize("declared", TABLES.values(), ids=lambda declared: declared.name)


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Every word of the code and the templates, without the declarations."""
    files = (path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".html", ".sql"))
    texts = (path.read_text(encoding="utf-8") for path in files if path.parent.name != "tables")
    return {word for text in texts for word in re.findall(r"\w+", text)}


@every_table
def test_a_column_is_computed_somewhere_by_its_name(declared: Table, words: set[str]) -> None:
    """`frame` fills what nothing computes with null, so that a column that was only declared would look unknown."""
    names = (name for name in declared.schema if not NUMBERED.fullmatch(name))
    assert [name for name in names if not {name, DERIVED.sub("", name)} & words] == []


@every_table
def test_a_column_of_real_numbers_names_its_unit_or_its_scale(declared: Table) -> None:
    meanings = {column.name: f"{column.name} {column.meaning}" for column in declared.columns}
    numbers = [name for name, dtype in declared.schema.items() if dtype in (pl.Float32, pl.Float64)]
    said = {name: f"{meanings[name]} {meanings.get(DERIVED.sub('', name), '')}" for name in numbers}
    assert [name for name, text in said.items() if not UNIT.search(text)] == []
