"""Evaluate the gates of a project from its store. The command and the asset use the same function.

Package `gates` evaluates the gates; this module supplies the rows, rules and baselines.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import polars as pl

from agent_eval.formats.hashing import digest
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.spill import Rows, frames_of
from agent_eval.gates import COLUMNS, INPUTS, GateFinding, GateSpec, gates
from agent_eval.gates.evaluate import estimated_metrics
from agent_eval.gates.judgment_facts import JudgmentFacts
from agent_eval.gates.names import check_names, scenario_problems
from agent_eval.gates.regression import INPUTS as COMPARED
from agent_eval.gates.regression import regression_finding
from agent_eval.judge.audits.drift import latest_drift
from agent_eval.project.calibration import standings, with_judge_error
from agent_eval.project.judgments import judgments_in_parts
from agent_eval.project.project import Project
from agent_eval.project.quality import metrics_with_labels, scales
from agent_eval.settings.gate_spec import Baseline, Rules, ScenarioGates
from agent_eval.simulate.scenarios import SUFFIX, BenchmarkScenario, LoadedSuite, line_in
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

_CLASSES = ["agent_id", "conversation_id", "outcome_class"]
_SCORES = ("composite", "raw composite", "universal", "domain")


def gate_results(project: Project, pairs: pl.DataFrame, spec: GateSpec | None = None) -> pl.DataFrame:
    """Return table gate_results of the given pairs, computed from the stored tables.

    Args:
        project: The project.
        pairs: agent_id and methodology_version, one row per pair.
        spec: The required gates; by default those in the project's settings.

    Raises:
        GateRulesError: If a gate has an unknown name, a limit outside its scale, or a margin without a baseline.
    """
    rules = checked_gates(project, spec)
    with project.store.reading():
        return _gate_results(project, pairs, rules)


def _gate_results(project: Project, pairs: pl.DataFrame, rules: GateSpec) -> pl.DataFrame:
    frames = {name: project.store.read(table(name), pairs) for name in INPUTS if name not in COLUMNS}
    classes = project.store.read(table("conversations"), pairs.select("agent_id").unique(), columns=_CLASSES)
    transcripts = frames["transcripts"].join(classes, on=_CLASSES[:2], how="left", maintain_order="left")
    failure_metrics = _failure_metrics(project)
    estimates_of = estimated_metrics(rules, metrics_with_labels(project, pairs))
    facts = JudgmentFacts.total(
        JudgmentFacts.of(
            part,
            transcripts,
            failure_metrics=failure_metrics,
            mean_of=rules.threshold_names,
            estimates_of=estimates_of,
            scenarios=rules.separate_scenarios,
            severities_of=rules.severity_scenarios,
        )
        for part in judgments_in_parts(project, pairs, COLUMNS, in_order=bool(estimates_of))
    )
    has_severities = any(own.fail_on_error_severity for own in rules.scenarios.values())
    failures = project.store.read(table("failures"), pairs) if has_severities else None
    if any(layer.confidence == "lower" for _, layer in rules.layers()):
        frames["composite_scores"] = with_judge_error(project, frames["composite_scores"])
    is_demanded = any(layer.calibration for _, layer in rules.layers())
    gate_frames = [
        gates(
            {name: _of_version(frame, version) for name, frame in frames.items()},
            rules,
            facts=facts,
            failure_metrics=failure_metrics,
            severities=project.metrics.severities,
            metrics=project.metrics.names,
            scales=scales(project),
            pairs=_of_version(pairs, version),
            failures=failures if failures is None else _of_version(failures, version),
            regressions=_regressions(project, rules, _of_version(pairs, version)),
            judge_drift=latest_drift(project.store.read(table("judge_audits"))),
            calibration=standings(project, [version]) if is_demanded else None,
            max_unscored_share=project.settings.max_unscored_share,
            version=gate_versions(project, [version], rules)[version],
        )
        for version in pairs["methodology_version"].unique().sort()
    ]
    return pl.concat([table("gate_results").empty(), *gate_frames])


def gates_of(project: Project, frames: Mapping[str, object]) -> pl.DataFrame:
    """Evaluate those gates whose inputs are among these rows (by table); names in the rules are not checked."""
    input_frames = {name: frame for name in INPUTS if isinstance(frame := frames.get(name), pl.DataFrame)}
    rules, failure_metrics = with_scenarios(project), _failure_metrics(project)
    facts = JudgmentFacts.total(
        JudgmentFacts.of(
            {name: part},
            input_frames.get("transcripts", table("transcripts").empty()),
            failure_metrics=failure_metrics,
            mean_of=rules.threshold_names,
            scenarios=rules.separate_scenarios,
            severities_of=rules.severity_scenarios,
        )
        for name in COLUMNS
        if isinstance(rows := frames.get(name), Rows)
        for part in frames_of(rows, COLUMNS[name])
    )
    return gates(
        input_frames,
        rules,
        facts=facts,
        failure_metrics=failure_metrics,
        severities=project.metrics.severities,
        metrics=project.metrics.names,
        scales=scales(project),
        max_unscored_share=project.settings.max_unscored_share,
    )


def with_scenarios(project: Project, spec: GateSpec | None = None) -> GateSpec:
    """Return the gates (default: those in the settings) with those that the project's scenario files set."""
    rules = project.settings.gates if spec is None else spec
    of_files = {
        problem.file.removesuffix(SUFFIX): ScenarioGates(
            invalid_reason=f"{problem.file}:{problem.line}: {problem.reason}"
        )
        for suite in project.suites
        for problem in suite.problems
        if problem.file.endswith(SUFFIX)
    } | {
        f"{suite.name}/{scenario.id}": gates_of_scenario(scenario)
        for suite in project.suites
        for scenario in suite.scenarios
    }
    return rules.model_copy(update={"scenarios": {**of_files, **rules.scenarios}}) if of_files else rules


def checked_gates(project: Project, spec: GateSpec | None = None) -> GateSpec:
    """Check that every name in the gates exists, and return the gates with those of the scenario files.

    The gates are those in the settings by default. Those of scenario files are not checked here: see
    `scenario_file_problems`.

    Raises:
        GateRulesError: If a gate has an unknown name, a limit outside its scale, or a margin without a baseline.
    """
    agents = {*project.known_agents(), *project.declared[0]}
    stated = project.settings.gates if spec is None else spec
    check_names(stated, project.metrics, agents, project.registry.versions)
    return with_scenarios(project, spec)


def scenario_file_problems(
    project: Project, suites: Sequence[LoadedSuite] | None = None
) -> Iterator[Refusal]:
    """Yield the invalid scenario files of suites (default: all), and what is unknown in valid ones: thresholds, metrics, templates."""
    templates = sorted({t.slug for v in project.registry.versions for t in project.registry.get(v).templates})
    for suite in project.suites if suites is None else suites:
        yield from suite.problems
        for scenario in suite.scenarios:
            where = f"{suite.name}/{scenario.id}{SUFFIX}"
            file = project.home.scenarios / where
            for name, reason in scenario_problems(
                gates_of_scenario(scenario), project.metrics.names, scales(project)
            ):
                key = "thresholds" if name in scenario.thresholds else "metrics"
                at = name if key == "thresholds" else (scenario.metrics or ()).index(name)
                yield Refusal(where, line_in(file, (key, at)), f"{key}: {reason}")
            if scenario.template not in (None, *templates):
                reason = f"template is {scenario.template!r}; allowed: {', '.join(templates)}"
                yield Refusal(where, line_in(file, ("template",)), reason)


def gates_of_scenario(scenario: BenchmarkScenario) -> ScenarioGates:
    """Return the gates that a scenario file sets."""
    return ScenarioGates(
        thresholds=scenario.thresholds,
        metrics=scenario.metrics,
        fail_on_error_severity=scenario.fail_on_error_severity,
    )


def gate_versions(
    project: Project, versions: Collection[str], spec: GateSpec | None = None
) -> dict[str, str]:
    """Return the data version of the gates and the latest audits, which is the same for all methodology versions."""
    rules = with_scenarios(project, spec)
    audits = project.store.read(table("judge_audits"), columns=["audit_id"])["audit_id"].max()
    version = digest(
        "gates",
        rules.model_dump(mode="json", exclude=None if rules.scenarios else {"scenarios"}),
        project.settings.max_unscored_share,
        str(audits or ""),
    )
    return dict.fromkeys(versions, version)


def _failure_metrics(project: Project) -> set[str]:
    return {m.name for m in project.metrics.turn if m.is_failure and not m.is_measured}


def _regressions(project: Project, spec: GateSpec, pairs: pl.DataFrame) -> Mapping[AgentVersion, GateFinding]:
    """Compare each pair that has a baseline with it, and return the results by pair."""
    finding_of_pair = {}
    for row in pairs.select(AgentVersion._fields).iter_rows(named=True):
        pair = AgentVersion(**row)
        rules = spec.rules(*pair)
        if rules.baseline is not None and _other(pair, rules.baseline) != pair:
            finding_of_pair[pair] = _regression(project, rules, rules.baseline, pair)
    return finding_of_pair


def baselines(project: Project, agents: Collection[str]) -> dict[tuple[str | None, str | None], AgentVersion]:
    """Return the pair that each pair of these agents is compared with, by agent and version, if the gates name one."""
    pairs = [
        AgentVersion.of(agent_id=a, methodology_version=v) for a in agents for v in project.registry.versions
    ]
    by_pair = {(p.agent_id, p.methodology_version): project.settings.gates.rules(*p).baseline for p in pairs}
    others = {
        p: _other(AgentVersion.of(agent_id=p[0], methodology_version=p[1]), b)
        for p, b in by_pair.items()
        if b
    }
    return {p: other for p, other in others.items() if (other.agent_id, other.methodology_version) != p}


def _other(pair: AgentVersion, baseline: Baseline) -> AgentVersion:
    return AgentVersion.of(
        agent_id=baseline.agent or pair.agent_id,
        methodology_version=baseline.methodology or pair.methodology_version,
    )


def _regression(project: Project, rules: Rules, baseline: Baseline, pair: AgentVersion) -> GateFinding:
    other = _other(pair, baseline)
    ours, theirs = _compared(project, pair), _compared(project, other)
    name = other.agent_id if baseline.agent else f"methodology {other.methodology_version}"
    return regression_finding(
        name,
        ours,
        theirs,
        quantities=baseline.quantities,
        not_comparable=_not_comparable(project, pair, other, ours, theirs),
        answer_threshold=project.settings.answer_threshold,
        margin=None if rules.regression is None else rules.regression.margin,
        thresholds=rules.threshold_metrics,
        scales=scales(project),
    )


def _compared(project: Project, pair: AgentVersion) -> dict[str, pl.DataFrame]:
    keys = pl.DataFrame([pair], orient="row", schema=AgentVersion._fields)
    frames = {}
    for name in COMPARED:
        contract = table(name)
        frames[name] = project.store.read(contract, keys.select(contract.partition))
    frames["composite_scores"] = with_judge_error(project, frames["composite_scores"])
    return frames


def _not_comparable(
    project: Project,
    pair: AgentVersion,
    other: AgentVersion,
    ours: Mapping[str, pl.DataFrame],
    theirs: Mapping[str, pl.DataFrame],
) -> dict[str, str]:
    """Return the scores that are not comparable between two pairs, each with the reason.

    The reason is a difference in rubrics, scoring rules or domain templates.
    """
    first, second = (project.registry.get(each.methodology_version) for each in (pair, other))
    if first.rubric_hash != second.rubric_hash:
        return dict.fromkeys(_SCORES, f"{first.version} and {second.version} have different rubrics")
    templates = {template for side in (ours, theirs) for template in side["composite_scores"]["template"]}
    if len(templates) > 1:
        return dict.fromkeys((*_SCORES[:2], "domain"), "the agents have different domain templates")
    if first.scoring_hash != second.scoring_hash:
        return dict.fromkeys(_SCORES[:1], f"{first.version} and {second.version} score differently")
    return {}


def _of_version(frame: pl.DataFrame, version: str) -> pl.DataFrame:
    return frame.filter(pl.col("methodology_version") == version)
