"""Answer tool calls from the state of a conversation: records, files, tests on the text of files, and fixed tables.

Nothing that an agent writes is executed: tests compare texts, and a query is a set of arguments over a fixed table.
"""

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, Self

from pydantic import JsonValue, model_validator

from agent_eval.transcripts.models import Frozen

MOST_ROWS = 1_000  # maximum rows of a joined table and of an answer
State = dict[str, Any]
Row = dict[str, Any]
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_AGGREGATE: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "count": len, "sum": sum, "min": min, "max": max, "mean": fmean, "count_distinct": lambda values: len({*values}),
}  # fmt: skip


class StateAction(Frozen):
    """Define what a call does with the state of its conversation.

    `at` is the key of the state with the records, a mapping by id: {"1042": {…}}. The argument `key` of the call is the id of
    a record. get, update and delete need an existing record; put creates or replaces one, under a new id if `key` is
    not set; list returns the ids. `value` names the only argument that put stores, such as the text of a file.
    test checks the texts in `at` against the list `tests` of the state; query answers from the tables in `at`.
    """

    do: Literal["get", "list", "put", "update", "delete", "test", "query"]
    at: str
    key: str | None = None
    value: str | None = None
    once: bool = False  # put: a record with this id is an error

    @model_validator(mode="after")
    def _has_key(self) -> Self:
        if self.do in ("get", "update", "delete") and self.key is None:
            raise ValueError(f"key is missing: {self.do} needs the argument that names the record")
        return self


def acted(action: StateAction, arguments: Mapping[str, JsonValue], state: State) -> JsonValue:
    """Apply a call to the state and return its answer.

    Raises:
        LookupError: If a record, table or column does not exist.
        ValueError, TypeError: If an argument is missing or has a wrong value.
    """
    records = state.setdefault(action.at, {})
    if not isinstance(records, dict):
        raise ValueError(f"{action.at} of the state is not a mapping")
    match action.do:
        case "list":
            return sorted(records)
        case "test":
            return _tested(records, state.get("tests", []))
        case "query":
            return _queried(records, arguments)
        case _:
            return _of_record(action, arguments, records)


def _of_record(action: StateAction, arguments: Mapping[str, JsonValue], records: State) -> JsonValue:
    name = _free_id(action.at, records) if action.key is None else str(_argument(arguments, action.key))
    if action.do == "put":
        if action.once and name in records:
            raise ValueError(f"{name!r} in {action.at} exists already; nothing was changed")
        rest = {key: value for key, value in arguments.items() if key != action.key}
        records[name] = rest if action.value is None else _argument(arguments, action.value)
        return {"stored": name}
    if name not in records:
        raise LookupError(f"{action.at} has no {name!r}")
    if action.do == "delete":
        del records[name]
        return {"deleted": name}
    if action.do == "update":
        records[name] = {**records[name], **{k: v for k, v in arguments.items() if k != action.key}}
    value: JsonValue = records[name]
    return value


def _free_id(at: str, records: State) -> str:
    numbers = itertools.count(len(records) + 1)
    return next(name for n in numbers if (name := f"{at}-{n}") not in records)


def _argument(arguments: Mapping[str, JsonValue], name: str) -> JsonValue:
    if arguments.get(name) is None:
        raise ValueError(f"argument {name!r} is missing")
    return arguments[name]


def _tested(files: Mapping[str, Any], tests: Sequence[Mapping[str, Any]]) -> JsonValue:
    """Return which tests pass: the file contains all texts of `contains` and none of `lacks`, ignoring white space."""
    failed: list[JsonValue] = []
    for test in tests:
        text = "".join(str(files.get(test["file"], "")).split())
        missing = [part for part in test.get("contains", ()) if "".join(part.split()) not in text]
        extra = [part for part in test.get("lacks", ()) if "".join(part.split()) in text]
        if missing or extra or not text:
            failed.append({"test": test["name"], "error": test.get("error", "AssertionError")})
    return {"n_passed": len(tests) - len(failed), "n_failed": len(failed), "failed": failed}


def _queried(tables: Mapping[str, Any], arguments: Mapping[str, JsonValue]) -> JsonValue:
    """Return rows of a table after join, where, group_by with aggregates, order_by and limit."""
    rows = _rows(tables, str(_argument(arguments, "table")))
    if isinstance(join := arguments.get("join"), dict):
        by, other = str(_argument(join, "by")), _rows(tables, str(_argument(join, "table")))
        rows = [{**b, **a} for a in rows for b in other if _cell(a, by) == _cell(b, by)][:MOST_ROWS]
    for condition in _objects(arguments, "where"):
        test = _named(_COMPARE, condition.get("op", "="))
        column, value = str(_argument(condition, "column")), condition.get("value")
        rows = [row for row in rows if _holds(test, _cell(row, column), value)]
    aggregates = _objects(arguments, "aggregates")
    groups = arguments.get("group_by") or []
    if aggregates or groups:
        names = groups if isinstance(groups, list) else [groups]
        rows = _grouped(rows, [str(name) for name in names], aggregates)
    if isinstance(order := arguments.get("order_by"), str) and rows:
        column, is_down = order.removeprefix("-"), order.startswith("-")
        rows = sorted(
            rows,
            key=lambda row: (
                _cell(row, column) is not None,
                0 if _cell(row, column) is None else _cell(row, column),
            ),
            reverse=is_down,
        )
    if isinstance(columns := arguments.get("columns"), list) and columns:
        rows = [{str(name): _cell(row, str(name)) for name in columns} for row in rows]
    limit = arguments.get("limit")
    return [*rows[: limit if isinstance(limit, int) and limit > 0 else MOST_ROWS]]


def _grouped(rows: Sequence[Row], by: Sequence[str], aggregates: Sequence[Mapping[str, Any]]) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(_cell(row, name) for name in by), []).append(row)
    if not by:
        groups.setdefault((), [])
    group_rows = []
    for key, members in groups.items():
        values = dict(zip(by, key, strict=True))
        for aggregate in aggregates:
            name, column = str(aggregate.get("function", "count")), aggregate.get("column")
            cells = [1 if column is None else _cell(row, str(column)) for row in members]
            numbers = [cell for cell in cells if cell is not None]
            total = (
                _named(_AGGREGATE, name)(numbers) if numbers or name in ("count", "count_distinct") else None
            )
            values[f"{name}_{column}" if column else name] = (
                round(total, 4) if isinstance(total, float) else total
            )
        group_rows.append(values)
    return group_rows


def _rows(tables: Mapping[str, Any], name: str) -> list[Row]:
    if name not in tables:
        raise LookupError(f"table {name!r} does not exist; tables: {', '.join(sorted(tables))}")
    return list(tables[name])


def _cell(row: Row, name: str) -> Any:
    if name not in row:
        raise LookupError(f"column {name!r} does not exist; columns: {', '.join(row)}")
    return row[name]


def _holds(test: Callable[[Any, Any], bool], cell: Any, value: Any) -> bool:
    try:
        return cell is not None and test(cell, value)
    except TypeError:
        raise ValueError(f"{cell!r} cannot be compared with {value!r}") from None


def _named(functions: Mapping[str, Callable[..., Any]], name: object) -> Callable[..., Any]:
    if name not in functions:
        raise ValueError(f"{name!r} is unknown; allowed: {', '.join(functions)}")
    return functions[str(name)]


def _objects(arguments: Mapping[str, JsonValue], name: str) -> list[dict[str, JsonValue]]:
    value = arguments.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{name} is not a list of objects")
    return [item for item in value if isinstance(item, dict)]
