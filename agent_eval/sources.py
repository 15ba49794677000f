"""The sources of the graph and their data versions: what a change to the project's files means.

`run` compares them with `run_state`; Dagster gets them as observations. Both see the same hashes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from agent_eval import __version__
from agent_eval.judge.ratings import ratings_hash
from agent_eval.judge.recorded import verdicts_hash
from agent_eval.metrics.profile import PROFILE_VERSION
from agent_eval.metrics.registry import CONVERSATION_METRICS, TURN_METRICS
from agent_eval.project import Project
from agent_eval.tables import table
from agent_eval.transcripts.hashing import digest


@dataclass(frozen=True)
class Sources:
    """Data versions by source and partition."""

    agent_sessions: Mapping[str, str]
    human_ratings: Mapping[str, str]
    judge_spec: Mapping[str, str]
    scoring_spec: Mapping[str, str]
    cluster_spec: Mapping[str, str]

    def fingerprints(self) -> pl.DataFrame:
        """Table run_state as it should be: one row per agent and version."""
        return table("run_state").frame(
            {
                "agent_id": agent,
                "methodology_version": version,
                "fingerprint": digest(
                    __version__,
                    self.agent_sessions[agent],
                    self.human_ratings[agent],
                    self.judge_spec[version],
                    self.scoring_spec[version],
                    self.cluster_spec[version],
                ),
            }
            for agent in sorted(self.agent_sessions.keys() & self.human_ratings.keys())
            for version in sorted(
                self.judge_spec.keys() & self.scoring_spec.keys() & self.cluster_spec.keys()
            )
        )

    def by_name(self) -> dict[str, Mapping[str, str]]:
        """Source asset name → partition → data version."""
        return dict(vars(self))


def read_sources(project: Project, agents: Sequence[str], versions: Sequence[str]) -> Sources:
    """Hash the sources of some agents and versions; no ratings and no sessions have hashes too."""
    return Sources(
        agent_sessions=session_versions(project, agents),
        human_ratings=rating_versions(project, agents),
        judge_spec=judge_versions(project, versions),
        scoring_spec={v: m.scoring_hash for v, m in project.methodologies(versions).items()},
        cluster_spec=cluster_versions(project, versions),
    )


def session_versions(project: Project, agents: Sequence[str]) -> dict[str, str]:
    """Agent → hash of its agents.yaml entry and session files."""
    return {agent: project.sessions_hash(agent) for agent in agents}


def rating_versions(project: Project, agents: Sequence[str]) -> dict[str, str]:
    """Agent → hash of its human ratings."""
    return {a: ratings_hash(project.ratings_of([a])) for a in agents}


def judge_versions(project: Project, versions: Sequence[str]) -> dict[str, str]:
    """Version → hash of its rubrics and required tests, the metrics, the judge profile and the recorded verdicts."""
    metrics = sorted(m.rubric_hash for m in (*TURN_METRICS, *CONVERSATION_METRICS))
    recorded = verdicts_hash(project.verdicts[0])
    return {
        v: digest(m.rubric_hash, [t.slug for t in m.required_tests], metrics, PROFILE_VERSION, recorded)
        for v, m in project.methodologies(versions).items()
    }


def cluster_versions(project: Project, versions: Sequence[str]) -> dict[str, str]:
    """Version → hash of people's words on clusters, the embedding, and the merges and splits made; the same for all."""
    from agent_eval.clustering import cluster_version  # brings numpy, which the definitions do not need

    return dict.fromkeys(versions, cluster_version(project))
