"""docs/howto/from-fair-forge.md names every parameter and result of the source, and each counterpart exists."""

import importlib
import re
from dataclasses import fields
from typing import Any

import pytest
import typer

from agent_eval.cli import app
from agent_eval.scores.reliability.attempts import InteractionPass
from agent_eval.settings import Settings
from agent_eval.tables import table
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


def test_the_columns_that_the_page_names_are_those_of_the_command() -> None:
    """The page's commands run in test_commands.py; their figures: tests/scores/test_fair_forge.py."""
    listed = {name for _, here in ROWS if "--json" in here for name in re.findall(r"`(\w+)`", here)}
    assert listed <= {field.name for field in fields(InteractionPass)}
    assert {"k", "interaction_pass_hat_k_low"} <= listed
