"""Apply people's decisions about clusters from data/clusters/*.yaml, which override rules and models.

An entry names a cluster and sets its title, severity or root cause, merges it into another cluster, or moves some
of its texts to a new cluster. An invalid entry is rejected with file and line; the others are applied. Entries
are applied in the order of files and lines. If two entries for a cluster contradict each other, the later one is
rejected.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Literal, Self

import polars as pl
from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

from agent_eval.clusters.cluster_registry import REGROUPING, ClusterRegistryBuilder, rule_title
from agent_eval.clusters.consolidation import event, events_frame
from agent_eval.clusters.severity import highest, severity_of
from agent_eval.clusters.texts import BLOCK, normalised
from agent_eval.formats.hashing import digest
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.validation_messages import explain, shorten
from agent_eval.formats.yaml import Node, YamlError, YamlList, compose, construct
from agent_eval.tables import table
from agent_eval.tables.vocabularies import SEVERITY

BY = "human"
Id = Annotated[str, StringConstraints(pattern=r"^E-[0-9a-f]{10}$", strict=True)]
Words = Annotated[str, StringConstraints(min_length=1, max_length=2_000, strip_whitespace=True, strict=True)]
Title = Annotated[str, StringConstraints(min_length=1, max_length=120, strip_whitespace=True, strict=True)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", strict=True)]


class Override(BaseModel, frozen=True, extra="forbid"):
    """Define an entry.

    `split` maps the name of each new cluster to the texts that belong to it. `texts` are texts of other clusters of the
    same label and tool that belong to this one. `merge_into: null` undoes a merge by a model.
    """

    cluster: Id
    title: Title | None = None
    severity: Literal["low", "medium", "high", "critical"] | None = None
    root_cause: Words | None = None
    merge_into: Id | None = None
    split: dict[Name, Annotated[tuple[Words, ...], Field(min_length=1)]] | None = None
    texts: Annotated[tuple[Words, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.model_fields_set - {"cluster"}):
            raise ValueError("changes nothing; add title, severity, root_cause, merge_into, split or texts")
        if self.merge_into == self.cluster:
            raise ValueError("merge_into names the cluster itself; name another cluster")
        return self


@dataclass(frozen=True)
class OverrideEntry:
    """Hold an entry with its file and line."""

    file: str
    line: int
    override: Override


@dataclass(frozen=True)
class Applied:
    """Hold the tables after the entries were applied, the new events, and the rejected entries."""

    registry: pl.DataFrame
    members: pl.DataFrame
    events: pl.DataFrame
    refused: tuple[Refusal, ...] = field(default=())


def read_overrides(file: str, text: str) -> tuple[list[OverrideEntry], list[Refusal]]:
    """Return the valid entries of a file's text, which must be a YAML list, and the rejected entries."""
    try:
        root = compose(text)
        if root is None:
            return [], []
        if not isinstance(root, YamlList):
            raise YamlError("expected a list of entries (- cluster: E-…)", root.line)
    except YamlError as error:
        return [], [Refusal(file, error.line, shorten(error.reason))]
    entries: list[OverrideEntry] = []
    refusals: list[Refusal] = []
    for node in root.items:
        override = _entry(node)
        if isinstance(override, Override):
            entries.append(OverrideEntry(file, node.line, override))
        else:
            refusals.append(Refusal(file, node.line, shorten(override)))
    return entries, refusals


def overrides_hash(entries: Sequence[OverrideEntry]) -> str:
    """Return the content hash of all entries in order, which is used as a data version."""
    return digest(
        "cluster_overrides", [entry.override.model_dump(mode="json", exclude_unset=True) for entry in entries]
    )


def split_id(parent: str, name: str) -> str:
    """Return the permanent id of the cluster that a person splits off `parent` under this name."""
    return f"E-{digest('split', parent, name)[:10]}"


def separated(entries: Sequence[OverrideEntry]) -> set[str]:
    """Return the clusters that people keep separate, by `merge_into: null`."""
    return {
        entry.override.cluster
        for entry in entries
        if entry.override.merge_into is None and "merge_into" in entry.override.model_fields_set
    }


def apply_overrides(
    registry: pl.DataFrame, members: pl.DataFrame, entries: Sequence[OverrideEntry], *, at: date
) -> Applied:
    """Apply entries to the registry: first splits, then moves of texts, then merges, then names and severities.

    Merges by people whose entry was removed are undone. An entry is rejected if its cluster or merge target is
    unknown, if a merge would form a cycle, if a split names a text that the cluster does not contain, or if an
    earlier entry contradicts it. If consolidation merged a cluster, the cluster's name and severity also apply to
    the target, unless an entry sets those of the target; of several such clusters, the first one counts.
    """
    work = _Work(registry, members, separated(entries), at)
    for entry in entries:
        if entry.override.split:
            work.split(entry)
    for entry in entries:
        if entry.override.texts:
            work.move(entry)
    for entry in entries:
        if entry.override.merge_into:
            work.merge(entry)
    for entry in entries:
        work.name(entry)
    work.inherit()
    return work.applied()


class _Work:
    """Hold the state of the tables while entries are applied."""

    def __init__(
        self, registry: pl.DataFrame, members: pl.DataFrame, separate: Collection[str], at: date
    ) -> None:
        is_undone = (pl.col("merged_by") == "model") & pl.col("cluster_id").is_in([*separate])
        self.registry = registry.with_columns(
            pl.when((pl.col("merged_by") == BY) | is_undone).then(None).otherwise(pl.col(name)).alias(name)
            for name in ("merged_into", "merged_by")
        )
        self.builder = ClusterRegistryBuilder(self.registry, members, at)
        self.at = at
        self.members = {
            row[:3]: row[3] for row in members.select(*BLOCK, "text_hash", "cluster_id").iter_rows()
        }
        self.rows = {row["cluster_id"]: row for row in registry.iter_rows(named=True)}
        self.moved: dict[tuple[str, str | None, str], str] = {}
        self.merged: dict[str, str] = {}
        self.words: dict[str, dict[str, str]] = {}
        self.events: list[dict[str, object]] = []
        self.refused: list[Refusal] = []

    def split(self, entry: OverrideEntry) -> None:
        """Move the texts of each part to its new cluster, which is not created if all its texts are unknown."""
        parent = entry.override.cluster
        if parent not in self.rows:
            return  # reported once, by `name`
        label, tool, heir = self.rows[parent]["label"], self.rows[parent]["tool"], self._heir(parent)
        block_texts = {key: lead for key, lead in self.members.items() if key[:2] == (label, tool)}
        for name, texts in (entry.override.split or {}).items():
            new = split_id(parent, name)
            for text in texts:
                key = (label, tool, digest(normalised(text)))
                if block_texts.get(key) not in (parent, heir, new):
                    self.refuse(
                        entry,
                        f"split {name}: {parent} does not contain the text {text[:60]!r}; copy one of its texts",
                    )
                    continue
                self.moved[key] = new
            if new not in self.rows and new in self.moved.values():
                self.rows[new] = self._part(new, label, tool, name)
                self.events.append(event("split", parent, new, BY, name, self.at))

    def move(self, entry: OverrideEntry) -> None:
        """Move texts of the block to the cluster."""
        if entry.override.cluster not in self.rows:
            return  # reported once, by `name`
        cluster = self._heir(entry.override.cluster)
        label, tool = self.rows[cluster]["label"], self.rows[cluster]["tool"]
        for text in entry.override.texts or ():
            key = (label, tool, digest(normalised(text)))
            if key not in self.members:
                self.refuse(
                    entry,
                    f"texts: no cluster of this label and tool contains {text[:60]!r}; copy one of error_members",
                )
            elif self.moved.get(key, cluster) != cluster:
                self.refuse(
                    entry, f"texts: an earlier entry moves {text[:60]!r} to {self.moved[key]}; remove one"
                )
            else:
                self.moved[key] = cluster

    def merge(self, entry: OverrideEntry) -> None:
        """Redirect the cluster to the merge target, or reject the entry."""
        away, into = entry.override.cluster, str(entry.override.merge_into)
        if away not in self.rows:
            return  # reported once, by `name`
        if into not in self.rows:
            self.refuse(entry, f"merge_into: {into} is not a cluster of this project; see agent-eval errors")
            return
        away, into = self._heir(away), self._heir(into)
        if away == into:
            return  # their texts are in one cluster already
        if self.merged.get(away, into) != into:
            self.refuse(entry, f"an earlier entry merges {away} into {self.merged[away]}; remove one")
        elif self._redirected(into) == away:
            self.refuse(entry, f"merge_into: {into} already leads to {away}, a circle; remove one of the two")
        else:
            self.merged[away] = into
            if self.rows[away]["merged_into"] != into:
                self.events.append(event("merge", away, into, BY, "as data/clusters says", self.at))

    def name(self, entry: OverrideEntry) -> None:
        """Set the title, severity and root cause, or reject the entry."""
        override = entry.override
        if override.cluster not in self.rows:
            self.refuse(entry, f"{override.cluster} is not a cluster of this project; see agent-eval errors")
            return
        new_texts = override.model_dump(include={"title", "severity", "root_cause"}, exclude_none=True)
        texts = self.words.setdefault(override.cluster, {})
        if clash := [key for key in new_texts if texts.get(key, new_texts[key]) != new_texts[key]]:
            self.refuse(entry, f"an earlier entry gives {override.cluster} another {clash[0]}; remove one")
        self.words[override.cluster] = {**new_texts, **texts}

    def inherit(self) -> None:
        """Apply the texts that people set for a cluster also to the cluster that consolidation merged it into."""
        for name, human_words in list(self.words.items()):
            target = self._redirected(name)
            if target != name and name not in self.merged:
                self.words[target] = {**human_words, **self.words.get(target, {})}

    def refuse(self, entry: OverrideEntry, reason: str) -> None:
        """Record that an entry or a part of it could not be applied."""
        self.refused.append(Refusal(entry.file, entry.line, shorten(reason)))

    def applied(self) -> Applied:
        """Return the tables in their current state."""
        contract = table("error_registry")
        fresh = [row for name, row in self.rows.items() if name not in self.builder.seed_texts]
        registry = pl.concat([contract.conform(self.registry), contract.frame(fresh)])
        into = pl.col("cluster_id").replace_strict(self.merged, default=None, return_dtype=pl.String)
        registry = registry.with_columns(
            pl.coalesce(into, "merged_into").alias("merged_into"),
            pl.when(into.is_not_null()).then(pl.lit(BY)).otherwise("merged_by").alias("merged_by"),
        )
        return Applied(
            with_words(registry, self.words).sort("cluster_id"),
            self._members(),
            events_frame(self.events),
            tuple(self.refused),
        )

    def _heir(self, cluster: str) -> str:
        """Return the cluster that has the texts of a cluster whose texts left it when an earlier run was added."""
        at = cluster
        while self.rows[at]["merged_by"] == REGROUPING:
            at = self.rows[at]["merged_into"]
        return at

    def _redirected(self, start: str) -> str:
        """Return the final target of an id after all merges; merges by these entries take precedence.

        The number of steps is limited, so that cycles end.
        """
        at = start
        for _ in self.rows:
            row = self.rows[at]
            by_machine = row["merged_into"] if row["merged_by"] != BY else None
            target = self.merged.get(at) or by_machine
            if target is None:
                break
            at = target
        return at

    def _part(self, new: str, label: str, tool: str | None, name: str) -> dict[str, object]:
        title, severity = rule_title(label, tool, name), severity_of(label)
        return {
            "cluster_id": new,
            "label": label,
            "tool": tool,
            "severity": severity,
            "rule_severity": severity,
            "title": title,
            "rule_title": title,
            "first_seen": self.at,
            "last_seen": self.at,
            "merged_into": None,
            "merged_by": None,
        }

    def _members(self) -> pl.DataFrame:
        rows = self.builder.members
        keys = list(rows.select(*BLOCK, "text_hash").iter_rows())
        ids = [self.moved.get(key, old) for key, old in zip(keys, rows["cluster_id"], strict=True)]
        is_moved = pl.Series([key in self.moved for key in keys], dtype=pl.Boolean)
        return rows.with_columns(
            pl.Series("cluster_id", ids, dtype=pl.String),
            pl.when(is_moved).then(pl.lit(BY)).otherwise("method").alias("method"),
        )


def with_words(registry: pl.DataFrame, words: Mapping[str, Mapping[str, str]]) -> pl.DataFrame:
    """Return the registry with each title, severity and root cause by a person, else the model, else the rule.

    The higher of the rule's and the model's severity counts, unless a person set one.
    """

    def human(key: str) -> pl.Expr:
        human_texts = {name: texts[key] for name, texts in words.items() if key in texts}
        return pl.col("cluster_id").replace_strict(human_texts, default=None, return_dtype=pl.String)

    machine = highest(pl.col("rule_severity"), pl.col("model_severity"))
    counting = registry.with_columns(
        pl.coalesce(human("title"), "model_title", "rule_title", "title").alias("title"),
        pl.coalesce(human("root_cause"), "model_root_cause", "rule_root_cause").alias("root_cause"),
        pl.coalesce(human("severity").cast(SEVERITY), machine, "severity").alias("severity"),
    )
    return table("error_registry").typed(counting)


def _entry(node: Node) -> Override | str:
    """Return the parsed entry, or the reason why it is invalid."""
    try:
        value = construct(node, "typed")
    except YamlError as error:
        return error.reason
    if not isinstance(value, dict):
        return "an entry must be a mapping with the key cluster"
    try:
        return Override.model_validate(value)
    except ValidationError as error:
        return explain(error, Override)
