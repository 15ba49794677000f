"""Implement `agent-eval scenarios check`: check scenario files, and write their JSON Schema."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from agent_eval.formats.plain_text import count_of, one_line
from agent_eval.project import Project
from agent_eval.project.gates import scenario_file_problems
from agent_eval.simulate.scenarios import json_schema, read_suites


def check_scenarios(project: Project, out: Console, suites: Sequence[str], schema_file: Path | None) -> int:
    """Check all scenario files, print every problem, and return the exit code: 1 if there is one, else 0.

    If `schema_file` is given, write the JSON Schema of scenario files to it.
    """
    if schema_file is not None:
        schema_file.write_text(json_schema() + "\n", encoding="utf-8")
    loaded = read_suites(project.home.scenarios, suites)
    problems = list(scenario_file_problems(project, loaded))
    for problem in problems:
        at = f"{problem.file}:{problem.line}" if problem.line else problem.file
        out.print(one_line(f"{at}: {problem.reason}"), markup=False, soft_wrap=True)
    n = sum(len(suite.scenarios) for suite in loaded)
    n_suites = sum(bool(suite.scenarios) for suite in loaded)
    counts_text = f"{count_of(n, 'valid scenario')} in {count_of(n_suites, 'suite')}, {count_of(len(problems), 'problem')}"
    out.print(
        counts_text if loaded else "No suites. Add files data/scenarios/SUITE/ID.scenario.yaml.", markup=False
    )
    return 1 if problems else 0
