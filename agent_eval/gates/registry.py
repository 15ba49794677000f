"""Describe a gate: its kinds of findings, their documentation, and the function that evaluates it for one pair."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import polars as pl

from agent_eval.gates.coverage import NO_QUESTIONS, Asked
from agent_eval.gates.estimates import MeanEstimates
from agent_eval.gates.finding import GateFinding
from agent_eval.gates.judgment_facts import JudgmentFacts
from agent_eval.gates.scenarios import scenarios_of
from agent_eval.gates.thresholds import Bounds, Means, Scores
from agent_eval.settings.gate_spec import Rules
from agent_eval.tables.agent_version import AgentVersion

Reporting = Literal["turn_judgments", "error_clusters", "assertion_results", "composite_scores"]
"""Assets whose op reports gates (`gate_check_results`)."""


@dataclass(frozen=True)
class GateCase:
    """Hold what the gates of one agent under one version are evaluated from."""

    pair: AgentVersion
    rules: Rules
    row: Mapping[str, Any]  # of composite_scores; only the pair if that table is missing
    has_scores: bool
    is_slotted: bool  # whether the agent has a benchmark session
    frames: Mapping[str, pl.DataFrame]  # the tables of all pairs
    facts: JudgmentFacts
    scores: Scores
    bounds: Mapping[str, Mapping[str, Bounds]]
    labels: Mapping[str, Mapping[str, str]]  # what labels do to pass rates
    estimates: MeanEstimates | None
    lower_ends: Mapping[str, Mapping[str, float]] | None
    failure_metrics: Collection[str]
    severities: Mapping[str, str] | None
    metrics: frozenset[str] | None  # those that are switched on; None: all
    scales: Mapping[str, tuple[float, float]] | None
    failures: pl.DataFrame | None
    regression: GateFinding | None
    judge_drift: pl.DataFrame | None
    calibration: pl.DataFrame | None

    def rows(self, name: str) -> pl.DataFrame:
        """Return the rows of the pair in a table."""
        return self.own(self.frames[name])

    def own(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the pair."""
        agent, version = self.pair
        return frame.filter(pl.col("methodology_version") == version, pl.col("agent_id") == agent)

    @cached_property
    def transcripts(self) -> pl.DataFrame:
        """Return the conversations of the pair."""
        return self.rows("transcripts")

    @cached_property
    def of_conversations(self) -> pl.DataFrame:
        """Return the scenario of each conversation with a task."""
        return scenarios_of(self.transcripts)

    @property
    def asked(self) -> Asked:
        """Return the numbers of questions of the pair."""
        return self.facts.asked.get(self.pair, NO_QUESTIONS)

    @property
    def means(self) -> Means:
        """Return the mean of each metric with a threshold, by scenario."""
        return self.facts.means.get(self.pair, {})

    def is_off(self, metrics: Collection[str]) -> bool:
        """Return whether all of these metrics are switched off."""
        return self.metrics is not None and not self.metrics.intersection(metrics)

    def decided(
        self, finding: GateFinding | None, metrics: Collection[str], *, is_configured: bool
    ) -> GateFinding | None:
        """Return the finding of a gate about the questions of some metrics, if these were put to the turns of the pair.

        A gate without questions is passed by its own rule, because its subject does not exist. That says something only
        if its questions were put where there are turns; otherwise it is unknown, as after `run --metrics` with other
        metrics. A gate that is not configured is not evaluated if its metrics are switched off.
        """
        if finding is None or finding.result == "failed":
            return finding
        if not self.asked.is_any:
            return replace(finding, result="unknown", evidence="nothing was judged")
        if self.is_off(metrics):
            why = "the metrics of this gate are switched off"
            return replace(finding, result="unknown", evidence=why, value=None) if is_configured else None
        judged_metrics = self.facts.turn_metrics.get(self.pair, frozenset[str]())
        has_turns = bool(self.transcripts["n_user_messages"].fill_null(1).sum())
        if has_turns and metrics and judged_metrics.isdisjoint(metrics):
            why = "the metrics of this gate were not asked about these turns; agent-eval run without --metrics asks them"
            return replace(finding, result="unknown", evidence=why, value=None)
        return finding


@dataclass(frozen=True)
class Kind:
    """Describe one kind of finding: column `gate` of table gate_results, a row of docs/gates.md and an asset check."""

    name: str
    meaning: str  # description of the asset check
    exists: str  # condition under which the gate exists, in Markdown
    passes: str  # condition under which it passes, in Markdown
    check: tuple[Reporting, str] | None = (
        None  # the asset that also reports it, and the name of the check there
    )


@dataclass(frozen=True)
class Gate:
    """Describe a gate. Its limits are fields of `settings.gate_spec`."""

    order: int  # position among the findings of a pair
    kinds: tuple[Kind, ...]
    findings: Callable[[GateCase], Iterable[GateFinding | None]]
    metrics: Callable[[GateCase], Collection[str]] | None = (
        None  # whose questions a gate with a default needs
    )
    key: str = ""  # the key of `[gates]` that configures it

    def is_left_out(self, case: GateCase) -> bool:
        """Return whether the gate is not evaluated because its metrics are switched off."""
        off = self.metrics is not None and case.is_off(self.metrics(case))
        return off and case.asked.is_any and self.key not in case.rules.configured
