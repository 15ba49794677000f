"""Define the sources: observable assets whose data versions are hashes of files and settings."""

from collections.abc import Callable, Mapping

import dagster as dg
import polars as pl

from agent_eval.defs.assets import benchmarks
from agent_eval.defs.assets.common import OWNERS
from agent_eval.defs.assets.inbox import INBOX
from agent_eval.defs.dagster_internals import create_external_asset_from_source_asset
from agent_eval.defs.partitions import AGENTS, EVERY_AGENT, PAIRS, VERSIONS, key_frame, project_settings
from agent_eval.project import Project
from agent_eval.project import data_versions as sources
from agent_eval.project import gates as gating
from agent_eval.report.markdown import markdown_table
from agent_eval.tables.agent_version import AgentVersion


def _keys(context: dg.AssetExecutionContext, partitions: dg.PartitionsDefinition) -> list[str]:
    return list(partitions.get_partition_keys(dynamic_partitions_store=context.instance))


def _judge_versions(project: Project, keys: list[str]) -> Mapping[str, str]:
    pairs = key_frame(PAIRS, keys).iter_rows(named=True)
    return sources.judge_versions(project, [AgentVersion(**pair) for pair in pairs])


def _source(
    name: str,
    group: str,
    partitions: dg.PartitionsDefinition,
    observe: Callable[[Project, list[str]], Mapping[str, str]],
    *,
    kind: str,
    description: str,
    observed: Mapping[str, str],
    stales: str,
) -> dg.AssetsDefinition:
    """Return an observable source asset.

    `observed` maps each hashed item to its location; `stales` describes what a change makes stale.
    """
    table = markdown_table(pl.DataFrame({"hashed": list(observed), "where": list(observed.values())}))

    @dg.observable_source_asset(
        name=name,
        partitions_def=partitions,
        group_name=group,
        description=description,
        metadata={"observed": dg.MetadataValue.md(table), "a change redoes": stales},
        tags={f"dagster/kind/{kind}": ""},
    )
    def seen(
        context: dg.AssetExecutionContext, project: dg.ResourceParam[Project]
    ) -> dg.DataVersionsByPartition:
        return dg.DataVersionsByPartition(dict(observe(project, _keys(context, partitions))))

    source = create_external_asset_from_source_asset(
        seen
    )  # the same conversion as in Definitions; a source cannot have owners
    deps: list[dg.AssetDep] = []
    if name == "agent_sessions":
        deps += [dg.AssetDep(INBOX)] if project_settings().inbox else []
        deps += [dg.AssetDep(benchmarks.NAME, partition_mapping=EVERY_AGENT)] if benchmarks.IS_ON else []
    return source.map_asset_specs(lambda spec: spec.replace_attributes(owners=OWNERS, deps=deps))


agent_sessions = _source(
    "agent_sessions",
    "ingest",
    AGENTS,
    sources.session_versions,
    kind="json",
    description="The transcript files of an agent, in one folder per session, and its entry in agents.yaml. All "
    "tables of the agent are computed from them.",
    observed={
        "every file of every session": "data/sessions/<agent>/<session>/",
        "the agent's entry": "data/agents.yaml",
    },
    stales="all tables of this agent",
)
human_ratings = _source(
    "human_ratings",
    "ingest",
    AGENTS,
    sources.rating_versions,
    kind="csv",
    description="Ratings of an agent by people. They take precedence over every judge.",
    observed={"the agent's lines, by content": "data/ratings/*.csv"},
    stales="judgments, rubric ratings and scores of this agent",
)
judge_config = _source(
    "judge_config",
    "judging",
    PAIRS,
    _judge_versions,
    kind="yaml",
    description="The questions to judges about an agent under a version, and the judge. A changed rubric makes the "
    "judgments of this version stale; a changed judge makes the judgments of its pairs stale.",
    observed={
        "rubrics, anchors and required tests": "agent_eval/methodology/versions/, data/methodologies/",
        "metrics and their rubrics": "agent_eval/metrics/, setting metric_modules",
        "judge profile": "agent_eval/metrics/profile.py",
        "recorded verdicts": "data/verdicts/*.jsonl",
        "judge models and their parameters": "settings judge_*, else the models that this pair was last judged by",
    },
    stales="judgments and rubric ratings of this agent under this version, and all tables computed from them",
)
scoring_spec = _source(
    "scoring_spec",
    "scores",
    VERSIONS,
    sources.scoring_versions,
    kind="yaml",
    description="The scoring rules of a version. A changed weight makes scores stale, but not judgments.",
    observed={
        "weights, slots, required tests, disclosures, penalties": "agent_eval/methodology/versions/, data/methodologies/",
        "the threshold for correct answers": "setting answer_threshold",
    },
    stales="scores, reliability and boards under this version; judges are not asked again",
)
cluster_spec = _source(
    "cluster_spec",
    "errors",
    VERSIONS,
    sources.cluster_versions,
    kind="yaml",
    description="The inputs of clustering other than failures: manual names, merges and splits, and the embedding.",
    observed={
        "manual names, merges and splits": "data/clusters/*.yaml",
        "the embedding": "setting cluster_embedding",
        "merges and splits by agent-eval": "table error_events",
    },
    stales="failures, clusters and trends under every version",
)
gate_spec = _source(
    "gate_spec",
    "boards",
    VERSIONS,
    gating.gate_versions,
    kind="toml",
    description="The limits of the gates, and the latest audits of judge models.",
    observed={"the gates": "[gates] in agent_eval.toml", "the latest audits": "table judge_audits"},
    stales="gate results under this version",
)

SOURCES = [agent_sessions, human_ratings, judge_config, scoring_spec, cluster_spec, gate_spec]
