"""Compare two methodology versions. Changes have readable paths such as `weights.domain`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent_eval.methodology.models import Dimension, Methodology, RequiredTest, Scenario, Template

Tree = Mapping[str, "str | Tree"]


@dataclass(frozen=True)
class Change:
    """Represent one difference between two versions. None means that the part is absent.

    A part that is added or removed as a whole is one change, with a summary of its content.
    """

    path: str
    before: str | None
    after: str | None


def diff(a: Methodology, b: Methodology, *, with_status: bool = False) -> tuple[Change, ...]:
    """Return the changes from `a` to `b`: first those that affect scores, then wording.

    With `with_status`, changes of the publication date, status and successor follow. They describe the position of
    a version among the others and are omitted by default.
    """
    changes = tuple(_compare(_content(a), _content(b), ""))
    return (*changes, *_compare(_status(a), _status(b), "")) if with_status else changes


def _content(m: Methodology) -> Tree:
    return {
        "weights": {"universal": m.weights.universal, "domain": m.weights.domain},
        "required_tests": {t.slug: _required_test(t) for t in m.required_tests},
        "required_disclosures": dict.fromkeys(m.required_disclosures, "required"),
        "penalties": {
            f"{p.disclosure}={str(p.when).lower()}": f"{p.points} points off the composite"
            for p in m.penalties
        },
        "dimensions": {d.id: _dimension(d) for d in m.dimensions},
        "templates": {t.slug: _template(t) for t in m.templates},
        "rules": {name: {"text": rule.text, "origin": rule.origin} for name, rule in sorted(m.rules.items())},
        "references": {
            r.title: ", ".join(
                [
                    r.authors or "authors not given",
                    r.venue or "venue not given",
                    str(r.year or "year not given"),
                    *r.informs,
                ]
            )
            for r in m.references
        },
        **({"repeatability_guidance": g.text} if (g := m.repeatability_guidance) else {}),
        "title": m.title,
        "source": m.source,
        **({"changes": "\n".join(m.changes)} if m.changes else {}),
    }


def _status(m: Methodology) -> Tree:
    return {"published": m.published, "status": m.status, "superseded_by": m.superseded_by or "none"}


def _required_test(t: RequiredTest) -> Tree:
    return {name: str(value) for name, value in t.model_dump(exclude={"slug"}).items()}


def _dimension(d: Dimension) -> Tree:
    return {
        "name": d.name,
        "question": d.question,
        "anchors": d.anchors.by_rating(),
        "anchors_origin": d.anchors_origin,
        "needs_test": d.needs_test or "none",
    }


def _template(t: Template) -> Tree:
    return {
        "name": t.name,
        "category": t.category,
        "origin": t.origin,
        "content_origin": t.content_origin,
        "examples": ", ".join(t.examples),
        "criteria": {c.id: {"name": c.name, "anchors": c.anchors.by_rating()} for c in t.criteria},
        "scenarios": {s.id: _scenario(s) for s in t.scenarios},
    }


def _scenario(s: Scenario) -> Tree:
    return {"name": s.name, "description": s.description, "readings": dict(sorted(s.readings.items()))}


def _compare(before: Tree, after: Tree, prefix: str) -> Iterator[Change]:
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _compare(old, new, f"{prefix}{key}.")
        elif old != new:
            yield Change(f"{prefix}{key}", _brief(old), _brief(new))
    common = before.keys() & after.keys()
    old_order, new_order = (_order(side, common) for side in (before, after))
    if old_order != new_order:  # the order matters: it determines the columns d1_c1, d1_c2, …
        yield Change(f"{prefix}(order)", ", ".join(old_order), ", ".join(new_order))


def _order(tree: Tree, keys: Iterable[str]) -> list[str]:
    key_set = set(keys)
    return [key for key in tree if key in key_set]


def _brief(value: "str | Tree | None") -> str | None:
    if value is None or isinstance(value, str):
        return value
    summary = value.get("name", value.get("text"))
    return summary if isinstance(summary, str) else ", ".join(value)
