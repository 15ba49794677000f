"""The sources: files outside Dagster, seen through their hashes."""

from collections.abc import Callable, Mapping

import dagster as dg

from agent_eval import gating, sources
from agent_eval.defs.partitions import AGENTS, VERSIONS
from agent_eval.project import Project


def _agents(context: dg.AssetExecutionContext) -> list[str]:
    return list(context.instance.get_dynamic_partitions("agent"))


def _source(
    name: str,
    group: str,
    partitions: dg.PartitionsDefinition,
    observe: Callable[[Project, list[str]], Mapping[str, str]],
    description: str,
) -> dg.AssetsDefinition | dg.SourceAsset:
    @dg.observable_source_asset(
        name=name, partitions_def=partitions, group_name=group, description=description
    )
    def observed(
        context: dg.AssetExecutionContext, project: dg.ResourceParam[Project]
    ) -> dg.DataVersionsByPartition:
        keys = list(VERSIONS.get_partition_keys()) if partitions is VERSIONS else _agents(context)
        return dg.DataVersionsByPartition(dict(observe(project, keys)))

    return observed


agent_sessions = _source(
    "agent_sessions",
    "ingest",
    AGENTS,
    sources.session_versions,
    "data/sessions/<agent> and the agent's entry in agents.yaml.",
)
human_ratings = _source(
    "human_ratings",
    "ingest",
    AGENTS,
    sources.rating_versions,
    "data/ratings/*.csv: people's ratings; they win over every judge.",
)
judge_spec = _source(
    "judge_spec",
    "judging",
    VERSIONS,
    sources.judge_versions,
    "What judges are asked: rubrics, metrics, judge profile, recorded verdicts.",
)
scoring_spec = _source(
    "scoring_spec",
    "scores",
    VERSIONS,
    sources.scoring_versions,
    "What scores are made of: weights, required tests, disclosures, penalties; when an answer is correct.",
)

cluster_spec = _source(
    "cluster_spec",
    "errors",
    VERSIONS,
    sources.cluster_versions,
    "What failures are clustered by: data/clusters/*.yaml, the embedding, merges and splits that were made.",
)

gate_spec = _source(
    "gate_spec",
    "boards",
    VERSIONS,
    gating.gate_versions,
    "What gates are held against: [gates] in agent_eval.toml, and the latest audits of judge models.",
)

SOURCES = [agent_sessions, human_ratings, judge_spec, scoring_spec, cluster_spec, gate_spec]
