"""Compute the data versions of the asset graph's sources from the project's files and settings.

`fingerprints` uses them to determine which partitions are up to date, and they are reported to Dagster as
observations. Both use the same hashes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from agent_eval import __version__
from agent_eval.formats.hashing import digest
from agent_eval.formats.spill import Rows, in_memory
from agent_eval.judge.inputs.human_ratings import HALLUCINATION_PASSED, ratings_hash
from agent_eval.judge.inputs.recorded_verdicts import RecordedJudge, verdicts_hash
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.protocol import CANNOT_TELL
from agent_eval.judge.rules import NEEDS_MODEL
from agent_eval.metrics.profile import PROFILE_VERSION
from agent_eval.project.gates import gate_versions
from agent_eval.project.ingest import agent_sessions_hash
from agent_eval.project.project import Project
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

_PAIR = ["agent_id", "methodology_version"]
_OF_OPEN = (*_PAIR, "metric", "judge", "status", "unscored_reason", "earlier_profile")
"""The columns that show whether an answer is lacking."""


@dataclass(frozen=True)
class Sources:
    """Hold data versions by source and partition key; the keys of judge_config are `AgentVersion.key`."""

    agent_sessions: Mapping[str, str]
    human_ratings: Mapping[str, str]
    judge_config: Mapping[str, str]
    scoring_spec: Mapping[str, str]
    cluster_spec: Mapping[str, str]
    gate_spec: Mapping[str, str]

    def by_name(self) -> dict[str, Mapping[str, str]]:
        """Return the data versions by the name of the source asset and by partition."""
        return dict(vars(self))


def _pair(agent: str, version: str) -> AgentVersion:
    return AgentVersion.of(agent_id=agent, methodology_version=version)


def read_sources(project: Project, agents: Sequence[str], versions: Sequence[str]) -> Sources:
    """Return the data versions of the sources for these agents and versions; missing files also have a data version.

    Ratings have those of all agents, because the calibration of a version reads the ratings of every agent.
    """
    return Sources(
        agent_sessions=session_versions(project, agents),
        human_ratings=rating_versions(project, sorted({*agents, *project.with_sessions[0]})),
        judge_config=judge_versions(project, [_pair(a, v) for a in agents for v in versions]),
        scoring_spec=scoring_versions(project, versions),
        cluster_spec=cluster_versions(project, versions),
        gate_spec=gate_versions(project, versions),
    )


def session_versions(project: Project, agents: Sequence[str]) -> dict[str, str]:
    """Return the hash of each agent's agents.yaml entry and session files."""
    return {agent: agent_sessions_hash(project, agent) for agent in agents}


def rating_versions(project: Project, agents: Sequence[str]) -> dict[str, str]:
    """Return the hash of each agent's human ratings; with several raters it includes the setting `rater_rule`."""
    return {agent: _rating_version(project, agent) for agent in agents}


def _rating_version(project: Project, agent: str) -> str:
    ratings = project.ratings_of([agent])
    hash_of_all = ratings_hash(ratings)
    return (
        digest(hash_of_all, project.settings.rater_rule) if ratings["rater"].n_unique() > 1 else hash_of_all
    )


def judge_versions(project: Project, pairs: Sequence[AgentVersion]) -> dict[str, str]:
    """Return the hash of the judging inputs of each pair, by the key of the pair.

    The hash covers the version's rubrics and tests, the metrics, the judge profile, the recorded verdicts and the
    judge. If the settings name no model, the judge is the one last used for the pair. Therefore, a process without a
    model does not make the answers of a model stale, and a model that judged one version does not affect others.
    """
    recorded = verdicts_hash(project.verdicts[0])
    judges = project.judges.specs(pairs)
    keeps = project.settings.keep_answers and not project.judges.answers.earlier().is_empty()
    mark = ["keeps earlier answers"] if keeps else []  # so that they are asked again without the setting
    inputs_of_version = {}
    for version, methodology in project.methodologies({pair.methodology_version for pair in pairs}).items():
        tests = [test.slug for test in methodology.required_tests]
        inputs_of_version[version] = (
            methodology.rubric_hash,
            tests,
            project.metrics.hash,
            PROFILE_VERSION,
            recorded,
            *mark,
        )
    return {
        pair.key: digest(*inputs_of_version[version], *([judges[pair].to_json()] if pair in judges else []))
        for pair in pairs
        if (version := str(pair.methodology_version)) in inputs_of_version
    }


def score_inputs(project: Project, pairs: Sequence[AgentVersion]) -> pl.DataFrame:
    """Return table board_inputs of the given pairs: hashes of the current inputs of their scores."""
    stored, agents = project.store, pl.DataFrame({"agent_id": sorted({pair.agent_id for pair in pairs})})
    sessions = dict(stored.read(table("agents"), agents, columns=["agent_id", "sessions_hash"]).iter_rows())
    ratings = rating_versions(project, agents["agent_id"].to_list())
    judges = project.judges.specs(pairs)
    judging_inputs = (verdicts_hash(project.verdicts[0]), project.metrics.hash, PROFILE_VERSION)
    rules = {
        version: digest(m.rubric_hash, [test.slug for test in m.required_tests], m.scoring_hash)
        for version, m in project.methodologies({pair.methodology_version for pair in pairs}).items()
    }
    return table("board_inputs").frame(
        {
            **pair._asdict(),
            "sessions_hash": sessions.get(pair.agent_id),
            "ratings_hash": ratings[pair.agent_id],
            "judge_hash": digest(*judging_inputs, *([_counting(judges[pair])] if pair in judges else [])),
            "methodology_hash": rules[pair.methodology_version],
            "code_version": __version__,
        }
        for pair in pairs
    )


def _counting(judge: JudgeSpec) -> str:
    """Return a judge as JSON without the sample that only checks it, because those answers do not count."""
    return replace(judge, outcome_sample=None).to_json()


def scoring_versions(project: Project, versions: Sequence[str]) -> dict[str, str]:
    """Return the hash of each version's scoring rules (weights, slots, tests, penalties) and the scoring settings."""
    s = project.settings
    tools = (s.tool_threshold, sorted(s.tool_weights.items()), s.tool_profile)
    scoring_settings = (s.answer_threshold, tools, s.beta_prior, s.credible_level, s.interval)
    # Scores of a draft are computed again once it is published, and freeze it then.
    return {
        v: digest(m.scoring_hash, scoring_settings, *[True] * (m.status == "draft"))
        for v, m in project.methodologies(versions).items()
    }


def cluster_versions(project: Project, versions: Sequence[str]) -> dict[str, str]:
    """Return the hash of the inputs of clustering by version; it is the same for all versions."""
    from agent_eval.project.clusters import cluster_version  # imported on use: it loads numpy

    return dict.fromkeys(versions, cluster_version(project))


def open_judgments(project: Project, name: str, rows: Rows) -> pl.DataFrame:
    """Return the pairs in `rows` with a lost answer, or with questions whose earlier judge model was not available.

    An answer is a judgment, a rating, or the name of an error cluster. For other tables the result is empty.

    Returns:
        agent_id and methodology_version, one row per pair.
    """
    nothing = pl.DataFrame(schema=dict.fromkeys(_PAIR, pl.String))
    if name == "error_clusters":
        registry = project.store.read(table("error_registry"), columns=["cluster_id", "naming_problem"])
        unnamed = registry.drop_nulls("naming_problem")
        return in_memory(
            lambda part: part.join(unnamed, on="cluster_id", how="semi").select(_PAIR), rows
        ).unique()
    if name not in ("turn_judgments", "conversation_judgments", "rubric_ratings"):
        return nothing
    pairs = in_memory(lambda part: part.select(_PAIR).unique(), rows, _PAIR).unique()
    pairs_with_judge = nothing
    if name != "rubric_ratings":
        specs = project.judges.specs([AgentVersion(*row) for row in pairs.iter_rows()])
        pairs_with_judge = pl.DataFrame(list(specs), schema=nothing.schema, orient="row")
    keeps_earlier = project.judges.answers.keeps_earlier
    columns = [column for column in _OF_OPEN if column in table(name).schema]
    return in_memory(
        lambda part: _open(part, pairs_with_judge, keeps_earlier=keeps_earlier), rows, columns
    ).unique()


def _open(rows: pl.DataFrame, pairs_with_judge: pl.DataFrame, *, keeps_earlier: bool) -> pl.DataFrame:
    """Return the pairs with an open answer; those in `pairs_with_judge` have a judge that could answer open questions.

    Unless earlier answers are kept, an answer to an earlier wording only replaces one that was lost.
    """
    is_open = pl.col("status") == "unscored"
    if not keeps_earlier and "earlier_profile" in rows.columns:
        is_open |= (pl.col("judge") != RecordedJudge.name) & pl.col("earlier_profile").is_not_null()
    if "unscored_reason" in rows.columns:
        is_open &= pl.col("unscored_reason").fill_null("") != CANNOT_TELL
        is_left = (pl.col("unscored_reason") == NEEDS_MODEL) & (pl.col("metric") != HALLUCINATION_PASSED)
        is_open |= is_left & pl.col("is_judged")
    with_judge = rows.join(pairs_with_judge.with_columns(is_judged=pl.lit(value=True)), on=_PAIR, how="left")
    return with_judge.filter(is_open.fill_null(value=False)).select(_PAIR).unique()
