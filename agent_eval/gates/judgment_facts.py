"""Collect from the tables of judgments what the gates need: counts, exact means, silent turns and judge models.

The facts of several parts of a table can be added, so that the gates of a large agent never need all its judgments
at once.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import polars as pl

from agent_eval.gates.coverage import Asked, put_to_a_model
from agent_eval.gates.error_severity import (
    Looked,
    Unclustered,
    looked_for_failures,
    looked_in_scenarios,
    unclustered_failures,
)
from agent_eval.gates.estimates import answered_parts
from agent_eval.gates.silence import Silence, silences
from agent_eval.gates.thresholds import Mean, Means, means
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

_NO_MODEL = ("human", "rule", "recorded", "ensemble", "none")
K = TypeVar("K")
V = TypeVar("V")
_ByPair = Mapping[AgentVersion, V]


@dataclass(frozen=True)
class JudgmentFacts:
    """Hold facts about the judgments of several pairs of agent and version."""

    asked: _ByPair[Asked] = field(default_factory=dict[AgentVersion, Asked])
    means: _ByPair[Means] = field(default_factory=dict[AgentVersion, Means])
    looked: _ByPair[Looked] = field(default_factory=dict[AgentVersion, Looked])
    silent: _ByPair[Silence] = field(default_factory=dict[AgentVersion, Silence])
    models: _ByPair[frozenset[str]] = field(default_factory=dict[AgentVersion, frozenset[str]])
    parts: tuple[pl.DataFrame, ...] = ()  # from `answered_parts`
    answered: _ByPair[frozenset[tuple[str, str]]] = field(
        default_factory=dict[AgentVersion, frozenset[tuple[str, str]]]
    )  # judges, with the models that answered as their servers name them
    looked_in: _ByPair[Mapping[str, Looked]] = field(
        default_factory=dict[AgentVersion, Mapping[str, Looked]]
    )  # by scenario
    turn_metrics: _ByPair[frozenset[str]] = field(
        default_factory=dict[AgentVersion, frozenset[str]]
    )  # the metrics with a row of turn_judgments, whatever its status
    unclustered: _ByPair[Unclustered] = field(default_factory=dict[AgentVersion, Unclustered])

    @classmethod
    def of(
        cls,
        judgments: Mapping[str, pl.DataFrame],
        transcripts: pl.DataFrame,
        *,
        failure_metrics: Collection[str],
        mean_of: Collection[str],
        estimates_of: Collection[str] = (),
        scenarios: Collection[str] = (),
        severities_of: Collection[str] = (),
    ) -> "JudgmentFacts":
        """Collect the facts from a part of the judgments, which has all judgments of its conversations.

        Args:
            judgments: Tables turn_judgments and conversation_judgments by name; a missing table counts as empty.
            transcripts: Table transcripts of the same conversations.
            failure_metrics: The metrics whose labels are failures.
            mean_of: The metrics whose means are needed.
            estimates_of: The metrics for which more than the mean is needed, as labels correct it or an interval is required.
            scenarios: The benchmark scenarios whose means are kept apart.
            severities_of: The benchmark scenarios with a severity of their own.
        """
        turns, whole = (
            judgments[name] if name in judgments else table(name).empty()
            for name in ("turn_judgments", "conversation_judgments")
        )
        return cls(
            put_to_a_model(turns, whole),
            means(turns, whole, transcripts, mean_of, scenarios),
            looked_for_failures(turns, failure_metrics),
            silences(turns, transcripts),
            _models(turns, whole),
            (answered_parts(turns, whole, transcripts, estimates_of, failure_metrics, scenarios),)
            if estimates_of
            else (),
            _answered(turns, whole),
            looked_in_scenarios(turns, transcripts, failure_metrics, severities_of),
            {
                AgentVersion(agent, version): frozenset(metrics)
                for version, agent, metrics in turns.group_by(PAIR).agg(pl.col("metric").unique()).iter_rows()
            },
            unclustered_failures(turns, failure_metrics),
        )

    @classmethod
    def total(cls, parts: Iterable["JudgmentFacts"]) -> "JudgmentFacts":
        """Add the facts of parts without common conversations."""
        return sum(parts, cls())

    def __add__(self, other: "JudgmentFacts") -> "JudgmentFacts":
        return JudgmentFacts(
            _merged(self.asked, other.asked, Asked.__add__),
            _merged(self.means, other.means, _both_means),
            _merged(self.looked, other.looked, _both_looked),
            _merged(self.silent, other.silent, Silence.__add__),
            _merged(self.models, other.models, frozenset.union),
            self.parts + other.parts,
            _merged(self.answered, other.answered, frozenset.union),
            _merged(self.looked_in, other.looked_in, lambda a, b: _merged(a, b, _both_looked)),
            _merged(self.turn_metrics, other.turn_metrics, frozenset.union),
            _merged(self.unclustered, other.unclustered, lambda a, b: _merged(a, b, int.__add__)),
        )


def _both_looked(first: Looked, second: Looked) -> Looked:
    return first[0] + second[0], first[1] + second[1]


def _merged(first: Mapping[K, V], second: Mapping[K, V], add: Callable[[V, V], V]) -> dict[K, V]:
    merged = dict(first)
    for key, value in second.items():
        merged[key] = add(merged[key], value) if key in merged else value
    return merged


def _both_means(first: Means, second: Means) -> Means:
    sums: dict[str, dict[str, Mean]] = defaultdict(lambda: defaultdict(Mean))
    for part in (first, second):
        for metric, scenarios in part.items():
            for scenario, mean in scenarios.items():
                sums[metric][scenario] += mean
    return sums


def _models(
    turn_judgments: pl.DataFrame, conversation_judgments: pl.DataFrame
) -> dict[AgentVersion, frozenset[str]]:
    """Return the names of the judge models that answered, per pair."""
    both = pl.concat([frame.select(*PAIR, "judge") for frame in (turn_judgments, conversation_judgments)])
    by_pair = (
        both.filter(~pl.col("judge").is_in(list(_NO_MODEL))).group_by(PAIR).agg(pl.col("judge").unique())
    )
    return {AgentVersion(agent, version): frozenset(judges) for version, agent, judges in by_pair.iter_rows()}


def _answered(
    turn_judgments: pl.DataFrame, conversation_judgments: pl.DataFrame
) -> dict[AgentVersion, frozenset[tuple[str, str]]]:
    """Return the judges and the models that answered for them, per pair."""
    columns = [*PAIR, "judge", "response_model"]
    rows = pl.concat([frame.select(columns) for frame in (turn_judgments, conversation_judgments)])
    by_pair = defaultdict[AgentVersion, set[tuple[str, str]]](set)
    for version, agent, judge, model in rows.drop_nulls("response_model").unique().iter_rows():
        by_pair[AgentVersion(agent, version)].add((judge, model))
    return {pair: frozenset(answered) for pair, answered in by_pair.items()}
