"""Compute domain scores from the agent's template: five scenarios with three criteria each."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import polars as pl

from agent_eval.errors import NotFoundError
from agent_eval.methodology.models import SCENARIOS, Methodology, Template
from agent_eval.scores.composite.ratings import PAIR, Rated, RatedTarget, methodology_of, pairs_of, rated
from agent_eval.scores.statistics.exact import as_float, as_text, mean
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import DomainScores, RubricRatings, Transcripts


def scenario_0to100(criteria: Sequence[Fraction | None]) -> Fraction | None:
    """Return the sum of the three criteria / 15 × 100, exact; None if any is None.

    Source: methodology 1.0.0, Score calculation.
    """
    ratings = [value for value in criteria if value is not None]
    return sum(ratings, Fraction()) / 15 * 100 if len(ratings) == 3 else None


def domain_0to100(scenarios: Sequence[Fraction | None]) -> Fraction | None:
    """Return the exact mean of the five scenario scores; None if any is None.

    Source: methodology 1.0.0, Score calculation.
    """
    scores = [score for score in scenarios if score is not None]
    return mean(scores) if len(scores) == len(SCENARIOS) else None


def domain_scores(
    rubric_ratings: RubricRatings, transcripts: Transcripts, methodologies: Mapping[str, Methodology]
) -> DomainScores:
    """Return table `domain_scores`: one row per pair that has ratings.

    A criterion is averaged over the slot's conversations in each session and then over sessions, exactly. If
    any of these conversations is not rated, the criterion is null and named in `missing`. The transcripts
    supply only the pair's template; without a template the scores are null and `criteria` is empty.

    Raises:
        InputError: If two effective ratings rate one criterion of one conversation.
        NotFoundError: If a version does not define the template.
        InputError: If rows name a version without a methodology.
    """
    templates = _templates(transcripts, methodologies)
    expected = {pair: _parts(templates.get(pair)) for pair in pairs_of(rubric_ratings)}
    ratings = rated(rubric_ratings, expected)
    return table("domain_scores").frame(_row(pair, templates.get(pair), ratings[pair]) for pair in expected)


def template_named(slug: str, methodology: Methodology) -> Template:
    """Return the template with this slug, or raise NotFoundError if the version does not define it."""
    for template in methodology.templates:
        if template.slug == slug:
            return template
    template_slugs = ", ".join(t.slug for t in methodology.templates)
    raise NotFoundError(
        f"Methodology {methodology.version} has no template {slug!r}. It has: {template_slugs}. "
        "Materialise the transcripts again, or add the template to the file of the version."
    )


def _templates(
    transcripts: pl.DataFrame, methodologies: Mapping[str, Methodology]
) -> dict[AgentVersion, Template]:
    rows = transcripts.filter(pl.col("template").is_not_null()).select(*PAIR, "template").unique().sort(PAIR)
    return {
        AgentVersion(agent, version): template_named(slug, methodology_of(version, methodologies))
        for version, agent, slug in rows.iter_rows()
    }


def _parts(template: Template | None) -> list[RatedTarget]:
    if template is None:
        return [RatedTarget(scenario, None) for scenario in SCENARIOS]
    return [RatedTarget(s.id, c.id) for s in template.scenarios for c in template.criteria]


def _row(pair: AgentVersion, template: Template | None, ratings: Rated) -> dict[str, object]:
    criteria = [c.id for c in template.criteria] if template else []
    of_scenario = {s: [ratings.means[RatedTarget(s, c)] for c in criteria] for s in SCENARIOS}
    scores = {s: scenario_0to100(values) for s, values in of_scenario.items()}
    score = domain_0to100(list(scores.values()))
    return {
        **pair._asdict(),
        "template": template.slug if template else None,
        "criteria": criteria,
        **{s.lower(): as_float(value) for s, value in scores.items()},
        **{
            f"{s.lower()}_c{j}": as_float(value)
            for s, values in of_scenario.items()
            for j, value in enumerate(values, start=1)
        },
        "session_ids": ratings.session_ids,
        "session_domain": [None if total is None else total / 75 * 100 for total in ratings.session_sums],
        "domain_0to100": as_float(score),
        "domain_exact": as_text(score),
        "judges": ratings.judges,
        "judge_models": ratings.judge_models,
        "n_unscored": ratings.n_unscored,
        "missing": ratings.missing,
        "is_disputed": ratings.is_disputed,
    }
