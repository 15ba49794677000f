"""Create the folder of a project with its settings, and optionally the sample."""

import shlex
import shutil
from pathlib import Path

from rich.console import Console

from agent_eval.errors import InputError, NotFoundError
from agent_eval.formats.plain_text import one_line
from agent_eval.judge.inputs.human_ratings import COLUMNS
from agent_eval.methodology import Registry
from agent_eval.methodology.models import DIMENSIONS
from agent_eval.simulate.agents.scripted import PACKAGED, packaged, packaged_suites

SAMPLES = ("smollm2",)
"""Samples besides the one in data/, which --sample copies without a name."""
PACKAGE = Path(__file__).parents[2]
FOLDERS = ("sessions", "scenarios", "ratings", "metrics", "methodologies")
_SETTINGS = """\
# Settings of this project. Each setting can also be set as an environment variable AGENT_EVAL_<NAME>. API keys are read
# from environment variables only. `agent-eval run --dry-run` estimates the calls and the cost of a run.

# judge_model = "openai/gpt-4o-mini"  # as litellm names it; separate several models with commas

# [budget]
# max_cost_usd = 5.0                  # maximum cost of judge calls in one run

# [gates]
# fail_on_error_severity = "critical"

# [gates.thresholds]
# helpfulness = 4
"""
_WORKSPACE = """\
load_from:
  - python_module: agent_eval.definitions
"""
_DG = """\
# Lets `dg list defs` and `dg check defs` find the assets.
directory_type = "project"

[project]
root_module = "definitions"
code_location_target_module = "definitions"
"""
_DEFINITIONS = """\
\"\"\"The definitions of agent_eval, for Dagster's command `dg`, which reads them from a module of the project.\"\"\"

from agent_eval.definitions import defs

__all__ = ["defs"]
"""
_COMPONENTS = '"""`dg` looks here for components; the assets of agent_eval need none."""\n'
_IGNORED = """\
.dagster/
data/*.duckdb
data/*.duckdb.*
data/*.lock
data/*.lock.*
data/report/
data/.report.*
data/sessions/*/.*
"""
_FILES = {
    "agent_eval.toml": _SETTINGS,
    "workspace.yaml": _WORKSPACE,
    "dg.toml": _DG,
    "definitions/__init__.py": _DEFINITIONS,
    "definitions/defs/__init__.py": _COMPONENTS,
    ".gitignore": _IGNORED,
}


_AGENTS = """\
- agent_id: reference
  name: Reference script (not a model)
  category: {suite}
  endpoint: {{kind: scripted, suite: {suite}}}

# Your agent: remove the number signs and enter the address. docs/scenarios.md lists all kinds of endpoints.
# - agent_id: my-agent
#   name: My agent
#   category: {suite}
#   endpoint:
#     kind: openai                        # a server with OpenAI's chat API
#     url: http://localhost:8000/v1
#     model: my-model
#     # headers: {{Authorization: "Bearer ${{MY_KEY}}"}}   # also set agent_variables = ["MY_KEY"] in agent_eval.toml
#     # tools: own                        # if the agent runs tools itself instead of calling the mocks
"""
SHEET = "rating-sheet.csv"
"""A file beside data/ with a row per rating of a session, to be filled in by people; it is not read from there."""


def init(
    out: Console,
    folder: Path,
    *,
    with_sample: bool,
    sample: str | None = None,
    benchmark: str | None = None,
) -> None:
    """Create the project and print the next command. Existing files are kept.

    With `benchmark`, copy the packaged suite of this name, and write agents.yaml and a rating sheet for it.

    Raises:
        NotFoundError: If there is no packaged suite of this name, or if the sample is requested but not installed,
            or if there is no sample of this name.
        InputError: If the folder cannot be created or is not writable.
    """
    if sample is not None and not with_sample:
        raise InputError(f"{sample!r} is the name of a sample; write --sample {sample}, or omit it.")
    if benchmark is not None and benchmark not in packaged_suites():
        raise NotFoundError(
            f"There is no packaged suite {benchmark!r}. Suites: {', '.join(packaged_suites())}."
        )
    if benchmark is not None and with_sample:
        raise InputError("--benchmark and --sample exclude each other. Create two projects.")
    source = _sample(sample) if with_sample else None
    existing_files: list[str] = []
    is_new = not (folder / "agent_eval.toml").exists()
    try:
        for name in FOLDERS:
            (folder / "data" / name).mkdir(parents=True, exist_ok=True)
        for name, text in _FILES.items():
            if not (folder / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
        if source is not None:
            _copy(source, folder / "data")
        if benchmark is not None:
            existing_files = _add_benchmark(benchmark, folder)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(
            f"Cannot create a project in {str(folder)!r}: {why}. Choose a writable folder."
        ) from error
    headline = "Project made" if is_new else "The project already exists; its files are kept"
    out.print(one_line(f"{headline}: {folder.resolve()}"), markup=False, soft_wrap=True)
    for name in existing_files:
        text = f"{name} exists already and is kept; `agent-eval init --benchmark` in a new folder shows the new one."
        out.print(one_line(text), markup=False, soft_wrap=True)
    then = "agent-eval run" if with_sample else "agent-eval import auto PATH… --agent ID"
    if benchmark is not None:
        then = "agent-eval simulate reference --sessions 3"
    go = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    out.print(one_line(f"Next: {go}{then}"), markup=False, soft_wrap=True)


def _sample(name: str | None) -> Path:
    """Return the folder of a sample: in the package if installed from a wheel, or in a checkout."""
    if name is not None and name not in SAMPLES:
        raise NotFoundError(
            f"There is no sample {name!r}. Samples: {', '.join(SAMPLES)}; without a name, --sample copies the fictional agents of the README."
        )
    places = (PACKAGE / "sample", PACKAGE.parent / "data")
    if name is not None:
        places = (PACKAGE / "samples" / name, PACKAGE.parent / "samples" / name)
    for folder in places:
        if (folder / "sessions").is_dir():
            return folder
    raise NotFoundError(
        "This installation does not contain the sample. Install the wheel, or run from a checkout with data/."
    )


def _add_benchmark(name: str, folder: Path) -> list[str]:
    """Write a packaged suite, agents.yaml and the rating sheet; return the files that existed and are kept."""
    texts = {
        Path("data", "scenarios", name, file.name): file.read_text(encoding="utf-8")
        for file in sorted((PACKAGED / name).glob("*.yaml"))
    }
    texts[Path("data", "agents.yaml")] = _AGENTS.format(suite=name)
    texts[Path(SHEET)] = _sheet(name)
    existing_files = []
    for path, text in texts.items():
        target = folder / path
        if target.exists():
            existing_files += [path.as_posix()] if target.read_text(encoding="utf-8") != text else []
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    return existing_files


def _sheet(name: str) -> str:
    """Return a CSV file with a row for each of the 21 ratings of a session: U1–U6, and the criteria of D1–D5."""
    suite, _ = packaged(name)
    template = next(t for t in Registry.read().current.templates if t.slug == suite.scenarios[0].template)
    rows = [{"session_id": "SESSION", "target": dimension} for dimension in DIMENSIONS]
    rows += [
        {"conversation_id": f"SESSION-{s.id}", "target": str(s.slot), "criterion": criterion.id}
        for s in suite.scenarios
        if str(s.slot).startswith("D")
        for criterion in template.criteria
    ]
    lines = [{"agent_id": "AGENT", "methodology_version": "any", "rater": "YOU"} | row for row in rows]
    return "\n".join([",".join(COLUMNS), *(",".join(row.get(c, "") for c in COLUMNS) for row in lines), ""])


def _copy(source: Path, data: Path) -> None:
    """Copy the files of the sample, except files that already exist."""
    for name in ("README.md", "agents.yaml", "ratings", "scenarios", "sessions", "verdicts"):
        files = [source / name] if (source / name).is_file() else sorted((source / name).rglob("*"))
        for file in files:
            target = data / file.relative_to(source)
            if file.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
