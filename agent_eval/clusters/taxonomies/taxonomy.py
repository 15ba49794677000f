"""Read a taxonomy of failures, and give each cluster its category: by the crosswalk, or by a judge model."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, ValidationError

from agent_eval.clusters.cluster_registry import Space, targets
from agent_eval.clusters.failures import FAILURE_METRICS
from agent_eval.clusters.naming import Case, cases_of, shown_texts
from agent_eval.errors import ConfigurationError
from agent_eval.formats.hashing import digest
from agent_eval.formats.plain_text import sanitize, sanitize_line
from agent_eval.formats.validation_messages import first_problem
from agent_eval.formats.yaml import YamlError, read_document, read_text
from agent_eval.metrics.base import NO_FAILURE
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.tables import table

LABELS = "labels"
"""The taxonomy without categories: the failure labels themselves."""
PACKAGED = ("mast", "trail", "agentrx")
CROSSWALK = "crosswalk"
NONE = "none of these"
"""What a model answers if no category describes a cluster."""
_HERE = Path(__file__).parent

Words = Annotated[
    str,
    BeforeValidator(lambda value: " ".join(sanitize(value).split()) if isinstance(value, str) else value),
    StringConstraints(min_length=1, max_length=500),
]


def _is_plain(name: str) -> str:
    if name != name.strip() or name != sanitize_line(name):
        raise ValueError(
            f"{sanitize_line(name)!r} has control characters, line breaks, or blanks at its ends; remove them"
        )
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(_is_plain)]
"""A line that tables, prompts and terminals show as it is; blanks at the ends are refused, as names must stay distinct."""
Several = Annotated[
    tuple[Name, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(min_length=1),
]


class Category(BaseModel, frozen=True, extra="forbid"):
    """Define a category: what it means, and the group that it belongs to."""

    meaning: Words
    group: Name | None = None


class _Declared(BaseModel, frozen=True, extra="forbid"):
    """Define the keys of a taxonomy file; `crosswalk` maps a failure label to its category, or to several, the usual one first."""

    title: Name
    source: Words | None = None
    categories: dict[Name, Category] = Field(min_length=2, max_length=100)
    crosswalk: dict[Name, Several] = Field(default_factory=dict)


@dataclass(frozen=True)
class Taxonomy:
    """Hold the categories of a taxonomy by name, and those that each failure label can have, the usual one first."""

    title: str
    categories: Mapping[str, Category]
    crosswalk: Mapping[str, tuple[str, ...]]

    @cached_property
    def version(self) -> str:
        """Return the title with a hash of the content."""
        category_fields = {name: category.model_dump() for name, category in self.categories.items()}
        return f"{self.title}@{digest('taxonomy', category_fields, dict(self.crosswalk))[:10]}"

    def candidates(self, label: str) -> dict[str, str]:
        """Return the categories that a failure with this label can have, with their meanings; all if the crosswalk lacks it."""
        names = self.crosswalk.get(label, tuple(self.categories))
        return {name: self.categories[name].meaning for name in names}

    def usual(self, label: str) -> str | None:
        """Return the category that the crosswalk gives the label, the usual one of several; None if it lacks the label."""
        return next(iter(self.crosswalk.get(label, ())), None)

    def group(self, category: str | None) -> str | None:
        """Return the group of a category; None without one."""
        return (
            self.categories[category].group if category is not None and category in self.categories else None
        )


@dataclass(frozen=True)
class Categoriser:
    """Hold the name of a judge model, and a function from clusters and their candidates to categories by cluster id."""

    model: str
    ask: Callable[[Sequence[Case], Mapping[str, Mapping[str, str]]], Mapping[str, str]]


def failure_labels() -> list[str]:
    """Return all failure labels that clusters can have, also those that only rules give."""
    failure_metrics = [metric for metric in DEFAULT.metrics if metric.name in FAILURE_METRICS]
    return sorted({label for metric in failure_metrics for label in metric.severities} - {NO_FAILURE})


def read_taxonomy(name: str, root: Path) -> Taxonomy | None:
    """Return the taxonomy of a setting: None for `labels`, a packaged one by name, else a YAML file relative to `root`.

    Raises:
        ConfigurationError: If there is no such taxonomy, or the file is invalid; with file and line.
    """
    if name == LABELS:
        return None
    is_file = name not in PACKAGED
    if is_file and not name.endswith((".yaml", ".yml")):
        raise ConfigurationError(
            f"taxonomy = {name!r} is unknown. Allowed: {', '.join((LABELS, *PACKAGED))}, or the path of a YAML file."
        )
    path = root / name if is_file else _HERE / f"{name}.yaml"
    try:
        document = read_document(read_text(path).removeprefix("\ufeff"), "text", allow_aliases=True)
    except YamlError as error:
        raise _invalid(name, error.line, error.reason) from error
    if not isinstance(document.value, dict):
        raise _invalid(name, 0, "is not a mapping; expected the keys title, categories and crosswalk")
    try:
        declared = _Declared.model_validate(document.value)
    except ValidationError as error:
        where, reason = first_problem(error, _Declared)
        raise _invalid(name, document.line_of(where), reason) from error
    if NONE in declared.categories:
        line = document.line_of(("categories", NONE))
        raise _invalid(name, line, f"categories: {NONE!r} is what a judge answers without one; rename it")
    for label, names in declared.crosswalk.items():
        line = document.line_of(("crosswalk", label))
        if label not in failure_labels():
            raise _invalid(name, line, _unknown("crosswalk", label, "failure label", failure_labels()))
        for category in names:
            if category not in declared.categories:
                categories = list(declared.categories)
                raise _invalid(name, line, _unknown(f"crosswalk.{label}", category, "category", categories))
    return Taxonomy(declared.title, declared.categories, declared.crosswalk)


def _invalid(name: str, line: int | None, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"taxonomy {name}{f':{line}' if line else ''}: {reason}{'' if reason.endswith('?') else '.'} Fix the file and run again."
    )


def _unknown(where: str, name: str, kind: str, allowed_names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, allowed_names, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(allowed_names)}"
    return f"{where}: {name!r} is not a {kind}; {meant}"


def categorised(
    registry: pl.DataFrame,
    members: pl.DataFrame,
    space: Space,
    taxonomy: Taxonomy | None,
    categoriser: Categoriser | None = None,
) -> pl.DataFrame:
    """Return the registry with the category of each cluster, null without a taxonomy or if none is known.

    The crosswalk decides if the label can have one category only. Else the model is asked, once for each cluster and set
    of candidates with their meanings, and again when the texts that it would be shown change (`clusters.naming`): a
    taxonomy with other categories asks only about the labels whose candidates changed. Without a model, its earlier
    answers stay while the candidates are the same; else the usual category of the label counts.
    """
    if taxonomy is None:
        none = (
            pl.lit(None, dtype=pl.String).alias(name) for name in ("category", "category_by", "category_from")
        )
        return table("error_registry").typed(registry.with_columns(none))
    candidates = {label: taxonomy.candidates(label) for label in registry["label"].unique()}
    current = members.with_columns(
        pl.col("cluster_id").replace_strict(targets(registry), return_dtype=pl.String)
    )
    texts_of_cluster = dict(
        shown_texts(current)
        .select("cluster_id", pl.coalesce("now_named_from", pl.col("n_texts").cast(pl.String)))
        .iter_rows()
    )
    open_clusters: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for row in registry.select("cluster_id", "label", "category", "category_by", "category_from").to_dicts():
        of_label = candidates[row["label"]]
        asked_with = digest("candidates", of_label)[:16]
        model_state = row["category_from"] if row["category_by"] != CROSSWALK else None
        is_kept = model_state is not None and model_state.startswith(asked_with)
        if not is_kept:
            row |= {"category": taxonomy.usual(row["label"]), "category_by": CROSSWALK, "category_from": None}
            row["category_by"] = CROSSWALK if row["category"] else None
        if categoriser is not None and len(of_label) > 1 and row["cluster_id"] in texts_of_cluster:
            state = f"{asked_with}:{digest(categoriser.model, texts_of_cluster[row['cluster_id']])[:16]}"
            if not is_kept or model_state != state:
                open_clusters[row["cluster_id"]] = state
        rows.append(row)
    if categoriser is not None and open_clusters:
        cases = [replace(c, near_misses=()) for c in cases_of(current, space, set(open_clusters))]
        answers = categoriser.ask(cases, {c.cluster_id: candidates[c.label] for c in cases})
        for row in rows:
            if (answer := answers.get(row["cluster_id"])) is not None:
                row["category"] = None if answer == NONE else answer
                row |= {"category_by": categoriser.model, "category_from": open_clusters[row["cluster_id"]]}
    target = table("error_registry")
    names = ("cluster_id", "category", "category_by", "category_from")
    frame = pl.DataFrame([{n: row[n] for n in names} for row in rows], schema=dict.fromkeys(names, pl.String))
    return target.typed(
        registry.drop(names[1:]).join(frame, on="cluster_id", how="left", maintain_order="left")
    )
