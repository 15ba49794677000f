"""Render gate results for CI systems: GitHub Actions annotations and JUnit XML. Evidence is untrusted text."""

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import polars as pl

from agent_eval.formats.plain_text import REPLACEMENT, one_line, sanitize

_COMMANDS = {"failed": "error", "unknown": "warning"}
_NOT_XML = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NOTHING = "no gate was evaluated: nothing has been run yet"


def annotations(gate_results: pl.DataFrame, version: str) -> Iterator[str]:
    """Yield one workflow command for each gate that did not pass, and one with the counts.

    '%' and line ends are escaped in messages, and ':' and ',' also in properties (GitHub, "Workflow commands for
    GitHub Actions").
    """
    for row in gate_results.filter(pl.col("result") != "passed").iter_rows(named=True):
        title = _property(f"{row['agent_id']} {version}: {_name(row)} {row['result']}")
        yield f"::{_COMMANDS[row['result']]} title={title}::{_message(row['evidence'])}"
    if gate_results.is_empty():
        yield f"::warning title=Gates {_property(version)}::{_message(NOTHING)}"
    else:
        counts = gate_results.group_by("result").len().sort("result").iter_rows()
        text = ", ".join(f"{n} {result}" for result, n in counts)
        yield f"::notice title=Gates {_property(version)}::{_message(text)}"


def inert_in_actions(text: str) -> str:
    """Return text that a GitHub runner does not interpret as a command, in the current or the old syntax."""
    return text.replace("##[", "##\u200b[").replace("::", ":\u200b:")


def junit(gate_results: pl.DataFrame, version: str) -> bytes:
    """Return JUnit XML with one suite per agent and one case per gate.

    A failed gate is a failure; an unknown gate is an error. Without any gate, the XML has one error.
    """
    root = ElementTree.Element("testsuites", _counts(gate_results) | {"name": f"gates {_text(version)}"})
    for (agent,), rows in gate_results.group_by("agent_id", maintain_order=True):
        suite = ElementTree.SubElement(root, "testsuite", _counts(rows) | {"name": _text(str(agent))})
        for row in rows.iter_rows(named=True):
            facts = {"classname": f"{_text(row['agent_id'])}.{_text(version)}", "name": _text(_name(row))}
            case = ElementTree.SubElement(suite, "testcase", facts | {"time": "0"})
            evidence = _text(row["evidence"])
            if row["result"] == "passed":
                ElementTree.SubElement(case, "system-out").text = evidence
            else:
                kind = "failure" if row["result"] == "failed" else "error"
                ElementTree.SubElement(case, kind, {"message": evidence, "type": row["gate"]})
    if gate_results.is_empty():
        facts = {"name": "gates", "tests": "1", "failures": "0", "errors": "1"}
        suite = ElementTree.SubElement(root, "testsuite", facts)
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": "gates", "name": "evaluated", "time": "0"}
        )
        ElementTree.SubElement(case, "error", {"message": NOTHING, "type": "gates"})
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _counts(rows: pl.DataFrame) -> dict[str, str]:
    failed, unknown = (rows.filter(pl.col("result") == result).height for result in ("failed", "unknown"))
    return {"tests": str(rows.height), "failures": str(failed), "errors": str(unknown)}


def _name(row: dict[str, Any]) -> str:
    return ": ".join(part for part in (row["gate"], row["subject"]) if part)


def _message(text: str) -> str:
    line = one_line(text).replace("##[", "##\u200b[")
    return line.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def _text(text: str) -> str:
    """Replace characters that XML 1.0 does not allow."""
    return _NOT_XML.sub(REPLACEMENT, sanitize(text))
