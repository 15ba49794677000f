"""The four sources of the graph and their data versions: what a change to the project's files means.

`run` compares them with `run_state`; Dagster gets them as observations. Both see the same hashes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from agent_eval import __version__
from agent_eval.judge.ratings import ratings_hash
from agent_eval.judge.recorded import verdicts_hash
from agent_eval.metrics.profile import PROFILE_VERSION
from agent_eval.project import Project
from agent_eval.tables import table
from agent_eval.transcripts.hashing import digest
from agent_eval.transcripts.sessions import sessions_hash


@dataclass(frozen=True)
class Sources:
    """Data versions by source and partition."""

    agent_sessions: Mapping[str, str]
    human_ratings: Mapping[str, str]
    judge_spec: Mapping[str, str]
    scoring_spec: Mapping[str, str]

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
                ),
            }
            for agent in self.agent_sessions
            for version in self.judge_spec
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
    )


def session_versions(project: Project, agents: Sequence[str]) -> dict[str, str]:
    """Agent → hash of its agents.yaml entry and session files."""
    return {a: sessions_hash(project.declared[0].get(a), project.home.sessions / a) for a in agents}


def rating_versions(project: Project, agents: Sequence[str]) -> dict[str, str]:
    """Agent → hash of its human ratings."""
    return {a: ratings_hash(project.ratings_of([a])) for a in agents}


def judge_versions(project: Project, versions: Sequence[str]) -> dict[str, str]:
    """Version → hash of its rubrics, the metrics, the judge profile, the recorded verdicts and the judge models.

    Without a model in the settings those count that the version's judgments were last asked of: a process that has
    no model does not make a model's verdicts stale.
    """
    recorded = verdicts_hash(project.verdicts[0])
    hashes = {}
    for version, methodology in project.methodologies(versions).items():
        judge = project.judge_spec(version)
        asked = [judge.to_json()] if judge else []
        hashes[version] = digest(
            methodology.rubric_hash, project.metrics.hash, PROFILE_VERSION, recorded, *asked
        )
    return hashes
