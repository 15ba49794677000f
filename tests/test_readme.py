"""What the README claims: its commands exist, its first lines are those of the sample, CI runs its test command."""

import re
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from agent_eval.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = sorted(
    set(re.findall(r"`?agent-eval ([a-z][a-z-]*)", README + (ROOT / "CHANGELOG.md").read_text()))
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_named_exists(name: str) -> None:
    assert name in get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "option", sorted(set(re.findall(r"--[a-z][a-z-]+", " ".join(re.findall(r"agent-eval [^`\n]+", README)))))
)
def test_every_option_that_is_named_exists(option: str) -> None:
    commands = get_command(app).commands.values()  # type: ignore[attr-defined]
    known = {opt for command in commands for parameter in command.params for opt in parameter.opts}
    assert option in known


def test_the_first_lines_are_what_the_sample_gives(sample_copy: Path) -> None:
    printed = CliRunner().invoke(app, ["run"]).stdout.splitlines()
    shown = re.search(r"```\n(Lumen Support leads.*?)\n```", README, re.DOTALL)
    assert shown
    assert [line.rstrip() for line in printed[:5]] == shown.group(1).splitlines()


def test_it_is_short() -> None:
    assert len(README.split()) <= 900


def test_ci_runs_the_test_command_of_the_readme() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    extract = next(line for line in lines if line.startswith("command="))
    shell = ["bash", "-c", f'{extract}; echo "$command"']
    found = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith("-m pytest -n 4")
    assert found.stdout.strip() in README


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "data" / "README.md"]:
        for target, heading in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", page.read_text()):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name}: {target}"
            assert not heading or heading in anchors(found), f"{page.name}: {target}#{heading}"


def anchors(page: Path) -> set[str]:
    """Return the addresses of a page's headings, as GitHub makes them: words in lower case, joined by hyphens."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
