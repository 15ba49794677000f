"""docs/howto/from-fair-forge.md names every parameter and result of the source, and each counterpart exists."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from agent_eval import open_project
from agent_eval.cli import app
from agent_eval.settings import Settings
from agent_eval.tables import table
from benchmarks.warm import agent_eval
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/howto/from-fair-forge.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!Fair Forge|aspect|---)(.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
# The source's signatures: Agentic.__init__, BayesianMode.__init__, AgenticMetric, ToolCorrectnessScore, BestOf.
NAMES = set(
    re.findall(
        r"\w+",
        """
        retriever model k use_structured_output strict bos_json_clause eos_json_clause threshold tool_threshold tool_weights
        statistical_mode mc_samples ci_level beta_prior_a beta_prior_b rng_seed criteria
        session_id assistant_id total_interactions correct_interactions is_fully_correct correctness_scores correct_indices
        tool_correctness_scores pass_at_k pass_at_k_ci_low pass_at_k_ci_high pass_pow_k pass_pow_k_ci_low pass_pow_k_ci_high
        tool_selection_correct parameter_accuracy sequence_correct result_utilization overall_correctness is_correct
        reasoning n c p bestof_winner_id bestof_contests
        """,
    )
)


def test_every_name_of_the_source_has_a_row() -> None:
    there = " ".join(name for name, _ in ROWS)
    assert [name for name in sorted(NAMES) if not re.search(rf"`{name}\b", there)] == []


@pytest.mark.parametrize(("there", "here"), [row for row in ROWS if row[0].startswith("`")])
def test_the_counterpart_of_each_row_exists(there: str, here: str) -> None:
    commands: Any = typer.main.get_command(app)
    found = [name in Settings.model_fields for name in re.findall(r"settings? `(\w+)`", here)]
    for line in re.findall(r"command `agent-eval ([^`]+)`", here):
        command, *options = line.split()
        known = {opt for parameter in commands.commands[command].params for opt in parameter.opts}
        wanted = {option for option in options if option.startswith("-")}
        wanted |= set(re.findall(r"option `(-[\w-]+)", here)) if "of command" in here else set()
        found.append(wanted <= known)
    for dotted in re.findall(r"function `([\w.]+)`", here):
        module, _, function = dotted.rpartition(".")
        found.append(callable(getattr(importlib.import_module(module), function)))
    for listed, name in re.findall(r"columns? ((?:`\w+`(?:, )?)+) of table `(\w+)`", here):
        found.append(set(re.findall(r"`(\w+)`", listed)) <= set(table(name).schema))
    found += [bool(table(name).schema) for name in re.findall(r"^table `(\w+)`", here)]
    if not found:
        assert re.match(r"not |the same function", here), (there, here)
    assert all(found), (there, here)


def test_the_blocks_of_the_page_run() -> None:
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "from-fair-forge.md", "exec"), names)


def test_a_data_set_is_scored_without_a_judge_and_its_columns_are_printed(tmp_path: Path) -> None:
    (text,) = re.findall(r"<<'JSON'\n(.*?)\nJSON", PAGE, flags=re.DOTALL)
    conversation = json.loads(text)
    conversation[0]["conversation"] *= 2
    wrong = conversation[0]["conversation"][1] = json.loads(json.dumps(conversation[0]["conversation"][0]))
    wrong["agentic"] = {"tools_used": [{"tool_name": "add", "parameters": {"a": 15, "b": 1}, "step": 2}]}
    (tmp_path / "dataset.json").write_text(json.dumps(conversation))

    def run(*arguments: str) -> str:
        done = agent_eval(tmp_path, *arguments, AGENT_EVAL_TOOL_PROFILE="fair-forge")
        assert done.returncode in (0, 1, 2), done.stderr
        return done.stdout

    run("init", ".")
    run("import", "fair-forge", "dataset.json", "--agent", "my-agent")
    run("run")
    listed = {name for _, here in ROWS if "--json" in here for name in re.findall(r"`(\w+)`", here)}
    for estimator in ("plug_in", "bayesian"):
        shown = run("reliability", "--interactions", "-k", "3", "--estimator", estimator, "--json")
        (row,) = json.loads(shown)
        assert listed <= set(row)
        assert (row["n_interactions"], row["n_interactions_correct"]) == (2, 1)
    scores = open_project(tmp_path).table("tool_correctness").filter(methodology_version="1.3.0")
    columns = ("selection", "parameters", "sequence", "utilisation", "overall", "is_correct")
    # of the second call, one of two parameters is right, its position is right, and no use is declared
    assert scores.sort("turn_index").select(columns).rows() == [
        (1.0, 1.0, 1.0, 1.0, 1.0, True),
        (1.0, 0.5, 1.0, 0.0, 0.625, False),
    ]
