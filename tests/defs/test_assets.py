"""Every asset is plain Dagster to look at, is wired in a few lines, and its rows pass their checks on the way to the store."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from agent_eval import definitions
from agent_eval.defs import assets
from agent_eval.defs.assets.common import (
    TableEvents,
    check_and_store,
    part_of,
    table_asset,
)
from agent_eval.tables import table

MODULES = sorted(
    p
    for p in Path(assets.__path__[0]).glob("*.py")
    if p.stem not in ("__init__", "benchmarks", "common", "inbox")
)
MOST_LINES = 11


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_asset_is_loaded_visibly_decorated_and_wired_in_less_than_twelve_lines(path: Path) -> None:
    module = ast.parse(path.read_text(encoding="utf-8"))
    assert f"{assets.__name__}.{path.stem}" in {loaded.__name__ for loaded in definitions.MODULES}
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    assert functions
    for made in functions:
        decorators = [ast.unparse(d.func) for d in made.decorator_list if isinstance(d, ast.Call)]
        assert decorators in (["dg.asset"], ["dg.multi_asset"]), made.name
        body = made.body[1:]  # the docstring comes first
        assert (body[-1].end_lineno or 0) - body[0].lineno < MOST_LINES, made.name


SCORE = {"methodology_version": "1.3.0", "agent_id": "a", "n_sessions": 1, "n_unscored": 0, "judges": [], "missing": []}  # fmt: skip


def materialised(scores: pl.DataFrame, **parents: pl.DataFrame) -> dg.ExecuteInProcessResult:
    keys = {"agent": "a", "version": "1.3.0"}
    one = {name: dg.StaticPartitionsDefinition([key]) for name, key in keys.items()}

    partitions = dg.MultiPartitionsDefinition(one)
    arguments: dict[str, Any] = {**table_asset("universal_scores"), "ins": {}, "partitions_def": partitions}

    def universal_scores(context: dg.AssetExecutionContext) -> TableEvents:
        yield from check_and_store(context, {"universal_scores": scores}, **parents)

    given = {"partition_key": dg.MultiPartitionKey(keys), "resources": {"io_manager": dg.mem_io_manager}}
    return dg.materialize([dg.asset(**arguments)(universal_scores)], **given, raise_on_error=False)  # type: ignore[arg-type]


def test_rows_that_break_a_blocking_check_are_not_stored_and_the_other_checks_are_reported() -> None:
    scores = table("universal_scores").frame([SCORE | {"universal_0to100": 101.0}])
    done = materialised(scores, rubric_ratings=scores)
    assert not done.success
    assert done.asset_materializations_for_node("universal_scores") == []
    found = {evaluation.check_name: evaluation.passed for evaluation in done.get_asset_check_evaluations()}
    others = dict.fromkeys(("keeps_contract", "one_methodology", "no_orphans"), True)
    assert found == others | {"on_scale": False}


def test_an_asset_that_forgets_the_parent_of_its_rows_fails_instead_of_skipping_the_check() -> None:
    scores = table("universal_scores").frame([SCORE])
    done = materialised(scores)
    (failed,) = [e for e in done.all_events if e.is_step_failure]
    assert LookupError.__name__ in str(failed.step_failure_data.error)
    assert materialised(scores, rubric_ratings=scores).success


def test_an_input_that_is_not_declared_is_refused_instead_of_loading_every_row() -> None:
    for named in ({"without_rows": ["turn"]}, {"turn": part_of(["agent_id"])}):
        with pytest.raises(LookupError, match="turn: not an input of assertion_results, which reads conv"):
            table_asset("assertion_results", **named)


def test_the_definitions_load_neither_sqlalchemy_nor_numpy() -> None:
    check = "import sys, agent_eval.definitions; print({'sqlalchemy', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
