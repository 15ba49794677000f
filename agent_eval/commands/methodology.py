"""Implement `agent-eval methodology`: list, show, compare and validate versions."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from agent_eval.commands.terminal.output import print_json
from agent_eval.formats.plain_text import one_line
from agent_eval.methodology import Methodology, Registry, diff
from agent_eval.methodology.models import Reference, Template, Weights
from agent_eval.methodology.rule_numbers import rule_number_problems

if TYPE_CHECKING:
    from rich.console import Console

_LOG = logging.getLogger(__name__)
Row = Mapping[str, str | int | None]


def show_list(registry: Registry, console: "Console", *, as_json: bool) -> None:
    """Print one row per version, followed by the files that cannot be read (on stderr if `as_json` is true)."""
    rows = [_row(registry, m) for m in registry.all()]
    if as_json:
        for problem in registry.problems:
            _LOG.warning("Skipped %s", one_line(str(problem)))
        print_json(rows)
        return
    _print_table(console, [{**row, "content_hash": str(row["content_hash"])[:12]} for row in rows])
    for problem in registry.problems:
        console.print(one_line(f"Skipped: {problem}"), style="yellow", markup=False)


def show(
    registry: Registry, version: str, console: "Console", *, as_json: bool, template: str | None = None
) -> None:
    """Print one version: weights, dimensions with anchors, tests, disclosures, penalties, templates and rules.

    Args:
        registry: The versions.
        version: The version.
        console: The terminal.
        as_json: Whether to print JSON.
        template: Print only the template with this slug.

    Raises:
        NotFoundError: If the version does not exist, or if the version does not have the template.
    """
    m = registry.get(version)
    if template is not None:
        from agent_eval.commands.results.leaderboard import template_named

        only_template = template_named(m, template)
        if as_json:
            print_json([only_template.model_dump(mode="json", by_alias=True)])
        for line in () if as_json else _template_lines(only_template):
            _print_line(console, line)
        return
    if as_json:
        hashes = {
            "content_hash": m.content_hash,
            "rubric_hash": m.rubric_hash,
            "scoring_hash": m.scoring_hash,
        }
        print_json([{**m.model_dump(mode="json", by_alias=True), **hashes}])
        return
    for line in _lines(m):
        _print_line(console, line)


def show_diff(registry: Registry, a: str, b: str, console: "Console", *, as_json: bool) -> None:
    """Print the differences between versions `a` and `b`; date and status come last.

    Raises:
        NotFoundError: If one of the versions does not exist.
    """
    changes = diff(registry.get(a), registry.get(b), with_status=True)
    if as_json:
        print_json([{"path": c.path, "before": c.before, "after": c.after} for c in changes])
        return
    if not changes:
        console.print(f"{a} and {b} have the same content.", markup=False)
    for change in changes:
        console.print(change.path, style="bold", markup=False)
        for sign, style, text in (("-", "red", change.before), ("+", "green", change.after)):
            for line in text.splitlines() if text is not None else ():
                _print_line(console, f"  {sign} {line}", style)


def validate(registry: Registry, console: "Console", *, as_json: bool) -> int:
    """Check all files, frozen hashes, worked examples, numbers in rules, and the current version.

    Return the exit code: 0 if all checks passed, else 1.
    """
    checks = list(_checks(registry))
    if as_json:
        print_json(checks)
    else:
        _print_table(console, checks)
    return int(any(check["result"] == "failed" for check in checks))


def _row(registry: Registry, m: Methodology) -> Row:
    penalties = (f"-{p.points} when {p.disclosure} is {str(p.when).lower()}" for p in m.penalties)
    mandatory = [t.slug for t in m.required_tests if t.enforcement == "bars_publication"]
    return {
        "version": m.version,
        "published": m.published,
        "status": m.status,
        "superseded_by": m.superseded_by,
        "n_templates": len(m.templates),
        "required_tests": ", ".join(mandatory),
        "required_disclosures": ", ".join(m.required_disclosures),
        "penalties": ", ".join(penalties),
        "source": "own" if m.version in registry.own else "packaged",
        "content_hash": m.content_hash,
    }


def _checks(registry: Registry) -> Iterator[Row]:
    for problem in registry.problems:
        yield _check("file", problem.file, "failed", str(problem))
    frozen = registry.frozen_problems()
    for problem in frozen:
        yield _check("frozen", problem.version or problem.file, "failed", problem.reason)
    for problem in registry.place_problems:
        yield _check("current", problem.version or problem.file, "failed", problem.reason)
    broken = {problem.version for problem in frozen}
    for m in registry.all():
        if m.version not in broken:
            yield _check("frozen", m.version, "passed", _frozen_state(registry, m))
        yield _worked_example(m)
        yield _rule_numbers(m)


def _frozen_state(registry: Registry, m: Methodology) -> str:
    if m.version in registry.recorded:
        return f"hash {m.content_hash}"
    return (
        "draft, may change"
        if m.status == "draft"
        else "not frozen yet; record its hash with validate --freeze"
    )


def _worked_example(m: Methodology) -> Row:
    """Check that all fives give exactly 100, all ones give 20, and ΣU = 24 with ΣD = 60 gives 80."""
    expected = {(30, 75): 100, (6, 15): 20, (24, 60): 80}
    wrong = [
        f"ΣU = {u}, ΣD = {d} gives {value}, expected {score}"
        for (u, d), score in expected.items()
        if (value := _composite(m.weights, u, d)) != score
    ]
    examples = "all 5s = 100, all 1s = 20, ΣU 24 and ΣD 60 = 80"
    return _check("worked_example", m.version, "failed" if wrong else "passed", "; ".join(wrong) or examples)


def _rule_numbers(m: Methodology) -> Row:
    """Check that the numbers in the rule texts agree with the data."""
    wrong = list(rule_number_problems(m))
    agreement = f"the numbers in {len(m.rules)} rules agree with the data"
    return _check("rule_numbers", m.version, "failed" if wrong else "passed", "; ".join(wrong) or agreement)


def _composite(weights: Weights, sum_u: int, sum_d: int) -> Fraction:
    universal, domain = Fraction(100 * sum_u, 30), Fraction(100 * sum_d, 75)
    return Fraction(weights.universal) * universal + Fraction(weights.domain) * domain


def _check(name: str, subject: str, result: str, detail: str) -> Row:
    return {"check": name, "subject": subject, "result": result, "detail": detail}


def _lines(m: Methodology) -> Iterator[str]:
    """Yield the version as lines of text; lines that start with '# ' or '## ' are headings."""
    yield f"# {m.title} {m.version}"
    replaces = f", supersedes {m.supersedes}" if m.supersedes else ""
    by = f" by {m.superseded_by}" if m.superseded_by else ""
    yield f"Published {m.published}, {m.status}{by}{replaces}. {m.source}"
    yield f"Composite = {m.weights.universal} · U + {m.weights.domain} · D. Content hash {m.content_hash}"
    yield "# Universal dimensions"
    for d in m.dimensions:
        needs = f", requires the test {d.needs_test}" if d.needs_test else ""
        yield f"## {d.id} {d.name} (anchors: {d.anchors_origin}{needs})"
        yield d.question
        yield from (f"  {rating}  {words}" for rating, words in d.anchors.by_rating().items())
    yield "# Required tests"
    for t in m.required_tests:
        yield f"## {t.name} ({t.enforcement}, {t.enforcement_origin})"
        yield from (f"Asked: {t.asked}", f"Wanted: {t.wanted}", f"Failure: {t.failure}")
    yield "# Disclosures and penalties"
    yield f"Required: {', '.join(m.required_disclosures) or 'none'}"
    yield from (f"{p.points} points deducted if {p.disclosure} is {str(p.when).lower()}" for p in m.penalties)
    for template in m.templates:
        yield from _template_lines(template)
    yield "# Rules"
    yield from (f"{name} ({rule.origin}): {rule.text}" for name, rule in m.rules.items())
    yield from _listed("Changes", m.changes)
    if (guidance := m.repeatability_guidance) is not None:
        yield f"# Repeatability guidance ({guidance.origin}{_verified(guidance.verified)})"
        yield guidance.text
        if guidance.ours:
            yield f"Ours: {guidance.ours}"
    yield from _listed("References, as published", tuple(_reference(r) for r in m.references))


def _reference(r: Reference) -> str:
    """Return one reference as a line of text that also lists its unknown parts."""
    parts = [
        r.title,
        r.authors or "authors not named",
        r.venue or "venue not named",
        str(r.year or "year not named"),
    ]
    about = f": {r.description}" if r.description else ""
    informs = f" Topics: {', '.join(r.informs)}." if r.informs else ""
    checked = f" Our check: {r.our_check}" if r.our_check else ""
    return f"{', '.join(parts)}{_verified(r.verified)}{about}{informs}{checked}"


def _verified(is_verified: bool) -> str:
    return "" if is_verified else ", unverified"


def _template_lines(t: Template) -> Iterator[str]:
    yield f"# Template {t.slug}: {t.name} (slug: {t.origin}, content: {t.content_origin})"
    if t.examples:
        yield f"For example {', '.join(t.examples)}"
    for c in t.criteria:
        yield f"## {c.name} ({c.id})"
        yield from (f"  {rating}  {words}" for rating, words in c.anchors.by_rating().items())
    for s in t.scenarios:
        yield f"## {s.id} {s.name}"
        yield s.description
        yield from (f"  {criterion}: {reading}" for criterion, reading in s.readings.items())


def _listed(title: str, items: tuple[str, ...]) -> Iterator[str]:
    if items:
        yield f"# {title}"
        yield from (f"  {item}" for item in items)


def _print_line(console: "Console", line: str, style: str | None = None) -> None:
    """Print a line; headings are bold, other lines are wrapped with their indentation."""
    from rich.padding import Padding
    from rich.text import Text

    if line.startswith("# "):
        console.print()
    if line.startswith(("# ", "## ")):
        console.print(Text(line.lstrip("# "), style="bold underline" if line.startswith("# ") else "bold"))
        return
    indent = len(line) - len(line.lstrip())
    console.print(Padding(Text(line.lstrip(), style=style or ""), (0, 0, 0, indent), expand=False))


def _print_table(console: "Console", rows: Sequence[Row]) -> None:
    from rich.text import Text

    from agent_eval.commands.terminal.tables import FittingTable

    table = FittingTable("", rows[0] if rows else ())
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row.values()))
    console.print(table)
