"""The pages of docs/reference, made from the code: settings, stored tables, commands; and lists in other pages.

After a change to one of them: `python -m tests.docs.reference` rewrites the pages.
"""

import functools
import importlib
import inspect
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import polars as pl
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

import agent_eval
from agent_eval.cli import app
from agent_eval.errors import AgentEvalError
from agent_eval.gates import KINDS
from agent_eval.metrics.metric_set import BUILT_IN_METRICS
from agent_eval.settings import FILE, BudgetSettings, Settings
from agent_eval.tables import TABLES, Column, Table
from agent_eval.tables.schema import DECLARED, INTERNAL
from agent_eval.transcripts.importers.catalog import RECOGNISED
from tests.rooms import ROOT as ROOT
from tests.rooms import between

FOLDER = ROOT / "docs" / "reference"
COMMAND = "python -m tests.docs.reference"


def settings_page() -> str:
    """Every setting: its values, its default, what it does."""
    rows = [
        f"- `{name}` ({_shown_type(field)}{_default(field)}): {' '.join((field.description or '').split())}"
        for name, field in [
            *((n, f) for n, f in Settings.model_fields.items() if n != "budget"),
            *((f"budget.{n}", f) for n, f in BudgetSettings.model_fields.items()),
        ]
    ]
    head = [
        "# Settings",
        "",
        _made_from("agent_eval/settings/settings.py"),
        "",
        f"A setting is read from `{FILE}` at the project's root, or from the environment as `AGENT_EVAL_` and its name in "
        "capitals (`AGENT_EVAL_BUDGET__MAX_CALLS`), lists as JSON: `AGENT_EVAL_METRICS_OFF='[\"verbosity\"]'`. Environment variables take precedence over "
        "the file, and command options over both. An unknown key is an error that lists the known keys.",
        "",
        "The environment variable `AGENT_EVAL_HOME` names the folder of the project, and `DAGSTER_HOME` that of Dagster "
        "(default: `.dagster` in the project). API keys are read from environment variables only, with the names that "
        "litellm uses.",
        "",
        "Values and the default, if any, are in brackets.",
        "",
    ]
    return _page([*head, *rows])


GROUPS = {
    "agents": "Transcripts",
    "turn_judgments": "Judgments and ratings",
    "failures": "Failures and error clusters",
    "tool_correctness": "Tools, assertions, scores and reliability",
    "leaderboard": "Boards",
    "gate_results": "Gates and state",
}
"""The first table of each group → the group."""


def tables_page() -> str:
    """Every stored table with its columns, by group; columns that several tables have are described once."""
    head = [
        "# Tables",
        "",
        _made_from("agent_eval/tables"),
        "",
        "All tables are in one DuckDB file, `data/agent_eval.duckdb` by default, schema `main`. Each has two further "
        "columns: `dagster_run_id`, the Dagster run that wrote the row, and `created_at`. A run replaces only the "
        "rows of its partitions. Columns are added, never renamed.",
        "",
        "A column without a type is text; `?` marks one that can be null. Null means unknown, undefined or absent, "
        "or that an earlier release stored the row, unless the column says more. Times are in UTC.",
        "",
        "Some columns are listed with another one: `…_low` and `…_high` are its 95 % bounds, null without an "
        "interval; `…_worst` and `…_best` are its value with every unknown trial counted as failed, or as passed "
        "together with the failures by an error of unknown cause; `…_of_judge` is its value before the labels of "
        "rating sheets correct it; `…_labels_own` counts the parts that people decided without a draw.",
        "",
        "[Shared columns](#shared-columns), single ones and groups, are described once, at the end. Tables "
        "[between the steps](../contributing/internal-tables.md) have a page for contributors.",
        "",
        *(line for name, group in GROUPS.items() for line in (f"- {group}: {', '.join(_links(name))}",)),
    ]
    tables = [
        line for t in TABLES.values() if t.name not in INTERNAL for line in (*_group(t.name), *_table(t))
    ]
    return _page([*head, *tables, "", "## Shared columns", "", *_shared_columns()])


def internal_page() -> str:
    """The tables that hold the program's own state and what one step hands to the next."""
    head = [
        "# Tables between the steps",
        "",
        _made_from("agent_eval/tables"),
        "",
        "These tables hold the program's own state, and what one asset hands to the next. "
        "[Tables](../reference/tables.md) describes all others, the notation and the shared columns.",
    ]
    lines = [line for name in TABLES if name in INTERNAL for line in _table(TABLES[name])]
    return _page(
        [*head, *(line.replace("](#columns-", "](../reference/tables.md#columns-") for line in lines)]
    )


def _group(name: str) -> tuple[str, ...]:
    return ("", f"## Group: {GROUPS[name]}") if name in GROUPS else ()


def _links(first: str) -> Iterator[str]:
    names = [*TABLES]
    for name in names[names.index(first) :]:
        if name in GROUPS and name != first:
            return
        if name not in INTERNAL:
            yield f"[`{name}`](#{name})"


def _described(column: Column) -> tuple[str, str, str]:
    kind = _TYPES.get(str(column.dtype), str(column.dtype))
    if isinstance(column.dtype, pl.Enum):
        values = column.dtype.categories.to_list()
        is_told = all(value in column.meaning for value in values)
        kind = "" if is_told else f"one of {', '.join(values)}"
    meaning = re.sub(_NULL_AS_IN_THE_HEAD, "", re.sub(", ISO 8601( in UTC)?$", "", column.meaning))
    return column.name, _in_cell(f"{'?' * column.nullable} {kind}"), _in_cell(meaning)


_NULL_AS_IN_THE_HEAD = re.compile(
    r"(; null|,? and|,? or) (in rows of earlier releases|if an earlier release stored the row)$"
    r"|; null (otherwise|if unknown|if undefined|if missing|if none|if not \w+|if none (is|was|did|does|do) ?\w*"
    r"|if (passed|scored|it counts|it gave one|there (is|was|were) none)|for other \w+|without (any|one|an? \w+))$"
)
"""What the page says of null once, for all columns."""

_TYPES = {
    "String": "",
    "Int64": "int",
    "Float64": "float",
    "Boolean": "bool",
    "List(String)": "texts",
    "List(Float64)": "floats",
    "Date": "date",
    "Datetime(time_unit='us', time_zone='UTC')": "time",
}


@functools.cache
def _column_groups() -> dict[str, list[tuple[str, str, str]]]:
    """The groups of columns that at least two tables have whole, the largest first."""
    groups = {b.name: [*map(_described, b.columns.values())] for b in DECLARED.values() if not b.is_table}
    tables = [{*map(_described, t.columns)} for t in TABLES.values()]
    shared = {name: columns for name, columns in groups.items() if sum(t >= {*columns} for t in tables) > 1}
    return dict(sorted(shared.items(), key=lambda item: -len(item[1])))


def _parts(
    columns: list[tuple[str, str, str]], groups: Iterable[str]
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Which of these groups a set of columns contains whole, and the columns of none of them."""
    contained: list[str] = []
    for name in groups:
        if (group := {*_column_groups()[name]}) <= {*columns}:
            contained.append(name)
            columns = [column for column in columns if column not in group]
    return contained, columns


@functools.cache
def _shared() -> set[tuple[str, str, str]]:
    """The columns that at least two tables declare with one type and meaning."""
    counts = Counter(_described(column) for t in TABLES.values() for column in t.columns)
    return {column for column, n in counts.items() if n > 1}


def _shared_columns() -> Iterator[str]:
    """Single columns by name, then each group."""
    groups = _column_groups()
    single = _shared() - {column for columns in groups.values() for column in columns}
    yield from _lines(sorted(single))
    for name, columns in groups.items():
        smaller = [other for other in groups if len(groups[other]) < len(columns)]
        contained, own = _parts(columns, smaller)
        also = f" The columns of {_names(tuple(contained))}, and:" if contained else ""
        yield from (
            "",
            f"### Columns `{name}`",
            "",
            f"{_sentence(DECLARED[name].meaning)}{also}",
            "",
            *_lines(own),
        )


_VARIANT = re.compile("_(low|high|worst|best|of_judge|labels_own)$")


def _lines(columns: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """One line per meaning: a column with its bounds and cases, and columns whose meanings differ only in their names."""
    listed = [*columns]
    names = [name for name, _, _ in listed]
    by_meaning: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, kind, meaning in listed:
        if _VARIANT.search(name) and _VARIANT.sub("", name) in names:
            continue
        alike = re.sub("^(Lower|Upper) ", "Lower or upper ", meaning)
        alike = re.sub(r"^D\d, criterion \d: ", "Criterion of a scenario: ", re.sub(r"^[DU]\d: ", "", alike))
        by_meaning.setdefault((kind, alike), []).append((name, meaning))
    for (kind, alike), alikes in by_meaning.items():
        own = [name for name, _ in alikes]
        own += [name for name in names if name not in own and _VARIANT.sub("", name) in own]
        joint = "" if kind.startswith("?") or not kind else " "
        yield f"- {_names(tuple(own))}{joint}{kind}: {alike if len(alikes) > 1 else alikes[0][1]}"


def commands_page() -> str:
    """Every command with its arguments and options, as `--help` prints them; links to all of them first."""
    head = [
        "# Commands",
        "",
        _made_from("agent_eval/commands/declared"),
        "",
        "`agent-eval COMMAND --help` prints the same. `--json` prints one array of rows on stdout; progress and "
        "diagnostics go to stderr.",
        "",
        ", ".join(f"[`{name}`](#{name.replace(' ', '-')})" for name, _ in _commands()),
        "",
        "## Exit codes",
        "",
        "| command | exit codes |",
        "|---|---|",
        *(f"| `{name}` | {codes} |" for name, c in _commands() if (codes := _exit_codes(c))),
        "| every other | 0 done |",
        "",
        "130: interrupted. 2: any other error, with one line on stderr that names the cause and the fix.",
        "",
        "## Options of several commands",
        "",
        *(f"- `{shown}`: {text}" for shown, text in sorted(_shared_options())),
    ]
    return _page([*head, *(line for name, command in _commands() for line in _command(name, command))])


def _exit_codes(command: Any) -> str:
    _, _, codes = (command.help or "").partition("Exit code: ")
    return _in_cell(codes.split("\n\n")[0]).rstrip(".")


def errors_page() -> str:
    """Every kind of error that a user can fix: its code, its class, its cause and its fix, by general kind."""
    head = [
        "# Errors",
        "",
        _made_from("the classes of errors"),
        "",
        "A command that fails prints the cause and the fix on stderr, and ends with exit code 2. In Python, each kind is "
        "a class of `agent_eval`, and `error.code` is its code. The first kind of a group contains the others.",
    ]
    all_kinds = kinds_of_errors()
    groups = [[kind, *_below(kind)] for kind in all_kinds if kind.__base__ is AgentEvalError]
    return _page([*head, *(line for kinds in groups for line in ("", *map(_error, kinds)))])


def kinds_of_errors() -> list[type[AgentEvalError]]:
    """All classes of errors that a user can fix, the base class aside."""
    for module in pkgutil.walk_packages(agent_eval.__path__, "agent_eval."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [*_below(AgentEvalError)]


def _below(kind: type[AgentEvalError]) -> Iterator[type[AgentEvalError]]:
    own = [below for below in kind.__subclasses__() if below.__module__.startswith("agent_eval.")]
    for below in sorted(own, key=lambda below: below.code):
        yield below
        yield from _below(below)


def _error(kind: type[AgentEvalError]) -> str:
    cause, fix = cause_and_fix(kind)
    return f"- `{kind.code}` (`{kind.__module__.removeprefix('agent_eval.')}.{kind.__name__}`): {cause}. Fix: {fix}."


def cause_and_fix(kind: type[AgentEvalError]) -> tuple[str, str]:
    """The two parts of the docstring of a kind of error."""
    cause, _, fix = inspect.cleandoc(kind.__doc__ or "").partition("\n\nFix: ")
    return re.sub("^Raised (when|for) ", "", " ".join(cause.split())).rstrip("."), " ".join(
        fix.split()
    ).rstrip(".")


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "errors.md": errors_page,
    "tables.md": tables_page,
    "commands.md": commands_page,
    "../contributing/internal-tables.md": internal_page,
}


def _rows(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, "|" + "---|" * head.count(" | ") + "---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n" + "\n".join(lines) + "\n"


def _outcomes() -> Iterator[tuple[str, ...]]:
    """Formats with the same rules share a row."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for entry in RECOGNISED:
        if entry.outcome is not None:
            names.setdefault(entry.outcome, []).append(f"`{entry.name}`")
    yield from ((", ".join(found), *cells) for cells, found in names.items())
    yield (
        "native sessions",
        "`outcome.correct`, `outcome.outcome_class` (or `outcome: harness_error`, a class as text)",
        "`outcome.error`, as tau-bench",
        "`success_reward` applied to `outcome.reward`, else unknown",
    )


ANSWERED = {
    "rating_1to5": "`rating_1to5`",
    "label": "`label`: `no failure`, or one or more failure labels, the most severe first: `false information; repetition`",
    "value": "`value` from 0 to 1",
}


def _ratings() -> Iterator[tuple[str, ...]]:
    """What people can answer; metrics with the same form share a row."""
    yield ("`U1`–`U6`", "`session_id`", "`rating_1to5`")
    yield ("`D1`–`D5`", "`conversation_id`, `criterion`", "`rating_1to5`")
    names: dict[tuple[str, str], list[str]] = {}
    for declared in BUILT_IN_METRICS:
        metric = declared.metric
        at = "`conversation_id`, `turn_index`" if metric.grain == "turn" else "`conversation_id`"
        answer = declared.people or ("`value` 0 or 1" if metric.is_binary else ANSWERED[metric.answer])
        names.setdefault((at, answer), []).append(f"`{metric.name}`")
    yield from ((", ".join(found), *cells) for cells, found in names.items())
    yield ("`hallucination_passed`", "`conversation_id`", "`value` 1 (passed) or 0")
    yield (
        "a metric of your own",
        "depends on the grain of the metric",
        "depends on the kind of the metric: `rating_1to5`, `label`, or `value` on its scale",
    )


def _gates() -> Iterator[tuple[str, ...]]:
    """Kinds with the same conditions share a row."""
    names: dict[tuple[str, str], list[str]] = {}
    for kind in KINDS.values():
        names.setdefault((kind.exists, kind.passes), []).append(f"`{kind.name}`")
    yield from ((", ".join(found), *cells) for cells, found in names.items())


GENERAL_FIRST = RECOGNISED[::-1]
PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "names": lambda: (
            " " + ", ".join(f"`{e.name}`{f' ({e.also})' if e.also else ''}" for e in GENERAL_FIRST)
        ),
    },
    "docs/sessions.md": {
        "ratings": lambda: _rows("| `target` | columns that identify the part | answer |", _ratings())
    },
    "docs/gates.md": {"gates": lambda: _rows("| gate | exists if | passes if |", _gates())},
    "docs/formats.md": {
        "formats": lambda: _rows(
            "| format | content of a file | a conversation is |",
            ((f"`{e.name}`", e.content, e.conversation) for e in GENERAL_FIRST),
        ),
        "details": lambda: _rows(
            "| format | details and omitted data |",
            ((f"`{e.name}`", e.details) for e in GENERAL_FIRST if e.details),
        ),
        "outcomes": lambda: _rows(
            "| format | passed or failed | class of an error | otherwise |", _outcomes()
        ),
    },
}
"""The generated parts of pages that are written by hand, each between two marks."""


def with_parts(name: str) -> str:
    """The text of a page with its generated parts."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for mark, part in PARTS[name].items():
        text = between(text, f"<!--generated:{mark}-->", f"<!--end:{mark}-->", part())
    return text


def write(folder: Path = FOLDER) -> None:
    """Write every page, and every generated part of the other pages."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    for name in PARTS:
        (ROOT / name).write_text(with_parts(name), encoding="utf-8")


def _page(lines: list[str]) -> str:
    return "\n".join(lines).strip() + "\n"


def _made_from(file: str) -> str:
    return f"<!-- generated from {file} by `{COMMAND}`; do not edit by hand -->"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _in_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _shown_type(field: FieldInfo) -> str:
    limits = {type(limit).__name__.lower(): limit for limit in field.metadata}
    words = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "below {}"}
    limited = [text.format(getattr(limits[name], name)) for name, text in words.items() if name in limits]
    return " ".join([_in_cell(_kind(field.annotation)), *limited])


def _kind(annotation: Any) -> str:
    """A type in words; None, the absence of the setting, is left out."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in parts if part is not NoneType)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is dict:
        return f"table of {_kind(parts[1])}s"
    if origin is tuple and Ellipsis not in parts:
        return f"{len(parts)} {_kind(parts[0])}s"
    if origin is tuple:
        return f"list of {_kind(parts[0])}s"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    names = {bool: "true or false", str: "text", int: "integer", float: "number", Path: "path"}
    return names[annotation]


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or value == () or isinstance(value, BaseModel):
        return ""
    if isinstance(value, dict):
        return f"; `{json.dumps(value)}`"
    return f"; `{list(value) if isinstance(value, tuple) else value}`"


def _table(table: Table) -> Iterator[str]:
    columns = [_described(column) for column in table.columns]
    own = [column for column in columns if column not in _shared()]
    groups, single = _parts([column for column in columns if column in _shared()], _column_groups())
    also = [*(f"[all of `{name}`](#columns-{name})" for name in groups)]
    also += [f"`{name}`" for name, _, _ in single if name not in table.key]
    yield from ("", f"### {table.name}", "", _sentence(table.grain))
    partition = f" Partition: {_names(table.partition)}." if table.partition else ""
    is_same = {*table.key} == {*table.partition}
    yield from (
        "",
        f"Key and partition: {_names(table.key)}." if is_same else f"Key: {_names(table.key)}.{partition}",
    )
    if also:
        yield f"Shared: {', '.join(also)}."
    if own:
        yield from ("", *_lines(own))


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _commands() -> Iterator[tuple[str, Any]]:
    """Leaf commands with their full names; click's classes differ by typer's version, hence Any."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from ((f"{name} {leaf}", found) for leaf, found in command.commands.items())
        else:
            yield name, command


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([f"agent-eval {name}", *map(_metavar, arguments)])
    yield from ("", f"## {name}", "", f"`{usage}`", "", *_without_exit_codes(command))
    options = _options(command)
    if own := [f"- `{shown}`: {text}" for shown, text in options if (shown, text) not in _shared_options()]:
        yield from ("", *own)
    if also := [f"`{shown}`" for shown, text in options if (shown, text) in _shared_options()]:
        yield from ("", f"Also {', '.join(also)}.")


def _without_exit_codes(command: Any) -> list[str]:
    """The help without the exit codes, which the page has in a table."""
    before, _, codes = (command.help or "").partition("Exit code: ")
    return "\n\n".join(filter(str.strip, (before, codes.partition("\n\n")[2]))).splitlines()


def _options(command: Any) -> list[tuple[str, str]]:
    """Arguments and options with their help."""
    return [
        (
            _metavar(p) if p.param_type_name == "argument" else ", ".join([*p.opts, *p.secondary_opts]),
            " ".join((getattr(p, "help", None) or "").split()),
        )
        for p in command.params
        if p.name != "help"
    ]


@functools.cache
def _shared_options() -> set[tuple[str, str]]:
    """The options that at least two commands have with one meaning."""
    counts = Counter(option for _, command in _commands() for option in _options(command))
    return {option for option, n in counts.items() if n > 1}


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


if __name__ == "__main__":
    write()
