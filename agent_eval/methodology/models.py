"""Define the frozen model of a methodology version. Versions differ in data, never in code."""

import hashlib
import json
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple, Self

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Origin = Literal["published", "ours"]
Text = Annotated[str, StringConstraints(min_length=1)]
Percent = Annotated[str, StringConstraints(pattern=r"^(0(\.\d+)?|1(\.0+)?)$")]
TestSlug = Literal["standardised_task", "hallucination", "error_injection"]
DIMENSIONS = ("U1", "U2", "U3", "U4", "U5", "U6")
LONGEST_VERSION = 64
SCENARIOS = ("D1", "D2", "D3", "D4", "D5")
_PLACE = ("published", "status", "superseded_by", "supersedes")
_CITED = ("references", "repeatability_guidance")
_HASHED_EARLIER = {"title", "authors", "year", "informs"}  # fields of a reference


class Version(NamedTuple):
    """Represent a semantic version that can be compared: 1.10.0 comes after 1.2.0."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a version of the form 'MAJOR.MINOR.PATCH'.

        Raises:
            ValueError: If the text does not have this form; the message states the reason.
        """
        parts = text.split(".")
        if (
            len(parts) != 3
            or len(text) > LONGEST_VERSION
            or not all(p.isascii() and p.isdigit() and str(int(p)) == p for p in parts)
        ):
            raise ValueError(f"version {text[:LONGEST_VERSION]!r} is not MAJOR.MINOR.PATCH, e.g. 1.3.0")
        return cls(*map(int, parts))


def in_version_order(rows: pl.DataFrame, *then: str) -> pl.DataFrame:
    """Return the rows sorted by semantic methodology version, then by the given columns, nulls last."""
    versions = sorted(rows["methodology_version"].unique(), key=Version.parse)
    place = pl.col("methodology_version").replace_strict(
        versions, range(len(versions)), return_dtype=pl.Int64
    )
    return rows.sort(place, *then, nulls_last=True, maintain_order=True)


class FrozenRules(BaseModel):
    """Base class of the models: instances cannot be modified, and unknown keys are rejected by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Weights(FrozenRules):
    """Hold the weights of the composite as decimal strings, which are exact."""

    universal: Percent
    domain: Percent

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        if (total := Fraction(self.universal) + Fraction(self.domain)) != 1:
            raise ValueError(f"weights sum to {float(total):g}, expected 1")
        return self


class Anchors(FrozenRules):
    """Hold the anchors: descriptions of the ratings 5 to 1."""

    five: Text = Field(alias="5")
    four: Text = Field(alias="4")
    three: Text = Field(alias="3")
    two: Text = Field(alias="2")
    one: Text = Field(alias="1")

    def by_rating(self) -> dict[str, str]:
        """Return the descriptions by rating ('5' to '1'), from best to worst."""
        return {"5": self.five, "4": self.four, "3": self.three, "2": self.two, "1": self.one}


class Dimension(FrozenRules):
    """Define one universal dimension, rated once per session."""

    id: Literal["U1", "U2", "U3", "U4", "U5", "U6"]
    name: Text
    question: Text
    anchors: Anchors
    anchors_origin: Origin
    needs_test: TestSlug | None = None  # required test without which the dimension cannot be rated


class Criterion(FrozenRules):
    """Define one of a template's three criteria."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    name: Text
    anchors: Anchors


class Scenario(FrozenRules):
    """Define one of a template's five scenarios."""

    id: Literal["D1", "D2", "D3", "D4", "D5"]
    name: Text
    description: Text
    readings: dict[str, str] = Field(default_factory=dict)  # by criterion id: its meaning in this scenario


class Template(FrozenRules):
    """Define a domain: five scenarios, each rated by the same three criteria."""

    slug: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+_v\d+$")]
    category: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    name: Text
    origin: Origin
    content_origin: Origin
    examples: tuple[str, ...] = ()
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=3, max_length=3)]
    scenarios: Annotated[tuple[Scenario, ...], Field(min_length=5, max_length=5)]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (ids := tuple(s.id for s in self.scenarios)) != SCENARIOS:
            raise ValueError(
                f"template {self.slug}: scenarios are {', '.join(ids)}, expected {', '.join(SCENARIOS)}"
            )
        criterion_ids = {c.id for c in self.criteria}
        if len(criterion_ids) != 3:
            raise ValueError(f"template {self.slug}: two criteria share an id")
        for scenario in self.scenarios:
            if unknown := set(scenario.readings) - criterion_ids:
                raise ValueError(
                    f"template {self.slug}, {scenario.id}: readings for unknown criteria {sorted(unknown)}"
                )
        return self


class RequiredTest(FrozenRules):
    """Define a test that every benchmark session must include. `enforcement` defines the effect if it is missing."""

    slug: TestSlug
    name: Text
    asked: Text
    wanted: Text
    failure: Text
    enforcement: Literal["warn", "bars_publication"]
    enforcement_origin: Origin


class Penalty(FrozenRules):
    """Define the points deducted if a disclosure has the value `when`."""

    disclosure: Literal["repeatability_tested"]
    when: bool
    points: Annotated[int, Field(ge=0, le=100)]


class Reference(FrozenRules):
    """Describe a publication that the methodology cites, as published. Unknown fields are null.

    `informs` lists the published topics. `our_check` states where the entry differs from what this project knows of the work,
    and `verified` whether the reference was checked against the work.
    """

    title: Text
    authors: Text | None = None
    venue: Text | None = None
    year: int | None = None
    description: Text | None = None
    informs: tuple[Text, ...] = ()
    our_check: Text | None = None
    verified: bool = False


class Guidance(FrozenRules):
    """Hold advice from the publication that does not affect scores, and this project's interpretation of it."""

    text: Text
    origin: Origin
    ours: Text | None = None  # how this project interprets it
    verified: bool = False


class Rule(FrozenRules):
    """Hold the text of a rule and its origin."""

    text: Text
    origin: Origin


DRAFT_MARK = "draft "


class Methodology(FrozenRules):
    """Represent one methodology version. `content_hash` covers everything that scores and ratings depend on.

    The hash excludes the position among the versions (`published`, `status`, `superseded_by`, `supersedes`) and the
    cited material (`references`, `repeatability_guidance`), so that e.g. a wrong year can be corrected.
    """

    version: str
    published: str  # ISO date
    status: Literal["current", "superseded", "draft"]
    superseded_by: str | None = None
    supersedes: str | None = None  # the lower version that this one replaces
    title: Text
    source: Text
    weights: Weights
    dimensions: Annotated[tuple[Dimension, ...], Field(min_length=6, max_length=6)]
    templates: Annotated[tuple[Template, ...], Field(min_length=1)]
    required_tests: tuple[RequiredTest, ...] = ()
    required_disclosures: tuple[Literal["u3_scope", "repeatability_tested"], ...] = ()
    penalties: tuple[Penalty, ...] = ()
    rules: dict[str, Rule] = Field(default_factory=dict)  # texts by name: averaging, …
    changes: tuple[str, ...] = ()
    repeatability_guidance: Guidance | None = None
    references: tuple[Reference, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        order = Version.parse(self.version)
        if self.supersedes is not None and Version.parse(self.supersedes) >= order:
            raise ValueError(f"supersedes {self.supersedes}: a version supersedes a lower one")
        if (ids := tuple(d.id for d in self.dimensions)) != DIMENSIONS:
            raise ValueError(f"dimensions are {', '.join(ids)}, expected {', '.join(DIMENSIONS)}")
        groups: tuple[tuple[str, list[str]], ...] = (
            ("templates", [t.slug for t in self.templates]),
            ("categories", [t.category for t in self.templates]),
            ("required_tests", [t.slug for t in self.required_tests]),
        )
        for name, values in groups:
            if len(set(values)) != len(values):
                raise ValueError(f"{name} repeat: {sorted(v for v in values if values.count(v) > 1)}")
        return self

    @property
    def order(self) -> Version:
        """Return the sort key. Versions are ordered semantically, not by date or alphabetically."""
        return Version.parse(self.version)

    @property
    def rubric_hash(self) -> str:
        """Return the hash of the rubrics (dimensions and templates). If it changes, judges are asked again."""
        return _hash(self.model_dump(mode="json", by_alias=True, include={"dimensions", "templates"}))

    @property
    def scoring_hash(self) -> str:
        """Return the hash of the scoring rules: weights, tests, disclosures, penalties and slots."""
        parts = self.model_dump(
            mode="json", include={"weights", "required_tests", "required_disclosures", "penalties"}
        )
        parts["templates"] = [[t.slug, t.category, [c.id for c in t.criteria]] for t in self.templates]
        parts["needs_test"] = [[d.id, d.needs_test] for d in self.dimensions]
        return _hash(parts)

    @property
    def content_hash(self) -> str:
        """Return the hash of the content that is frozen on publication."""
        return _hash(self._frozen_content())

    @property
    def hash_with_scores(self) -> str:
        """Return the hash that is stored with scores; that of a draft is marked, because it freezes nothing."""
        return f"{DRAFT_MARK}{self.content_hash}" if self.status == "draft" else self.content_hash

    @property
    def earlier_content_hash(self) -> str:
        """Return the hash including references, with which versions were frozen in earlier releases."""
        cited = [r.model_dump(mode="json", include=_HASHED_EARLIER) for r in self.references]
        return _hash(self._frozen_content() | {"references": cited})

    def _frozen_content(self) -> dict[str, object]:
        return self.model_dump(mode="json", by_alias=True, exclude={*_PLACE, *_CITED})

    def template_for(self, category: str | None) -> Template | None:
        """Return the template of a category, or None if this version has none."""
        return next((t for t in self.templates if t.category == category), None)

    def penalty_points(self, disclosure: str, value: bool | None) -> int | None:
        """Return the points deducted for a disclosed value.

        The result is 0 if no penalty applies, and None if a penalty depends on the disclosure and the value is unknown.
        """
        on_it = [p for p in self.penalties if p.disclosure == disclosure]
        if on_it and value is None:
            return None
        return sum(p.points for p in on_it if p.when == value)


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
