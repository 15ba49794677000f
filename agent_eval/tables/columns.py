"""Declare columns that several tables share."""

import polars as pl

from agent_eval.tables.contract import DATES, TIME, Column
from agent_eval.tables.vocabularies import (
    ASSESSMENT,
    CALIBRATION,
    ESTIMAND,
    ESTIMATOR,
    JUDGMENT_STATUS,
    SCORE_STATUS,
    U3_SCOPE,
)

S, I, F, B = pl.String, pl.Int64, pl.Float64, pl.Boolean  # noqa: E741
NAMES, NUMBERS = pl.List(pl.String), pl.List(pl.Float64)

AGENT = Column("agent_id", S, "The agent, as in agents.yaml", nullable=False)
VERSION = Column("methodology_version", S, "The methodology version, e.g. 1.3.0", nullable=False)
CONVERSATION = Column("conversation_id", S, "The conversation, unique within its agent", nullable=False)
SESSION = Column("session_id", S, "The session folder", nullable=False)
BY_PAIR = ("agent_id", "methodology_version")

ANSWERED = (
    Column(
        "response_model",
        S,
        "The model that answered, as the provider names it, e.g. gpt-4o-mini-2024-07-18; null when unknown",
    ),
    Column(
        "system_fingerprint", S, "The provider's fingerprint of the system that answered; null without one"
    ),
    Column(
        "dropped_parameters",
        NAMES,
        "Parameters that the model was asked without, as it does not take them, e.g. temperature; null when unknown",
    ),
)
SEEN = (
    Column(
        "seen_share",
        F,
        "Share of the characters of what was judged that the model was shown, 0–1; an image, recording or file counts "
        "as 6,400; null where none was asked, and in rows of earlier releases",
    ),
    Column(
        "n_left_out", I, "Messages, calls and attachments that the model was not shown whole; null likewise"
    ),
)
PAID = (
    Column(
        "disagreement",
        F,
        "Of an ensemble: highest rating or value minus lowest; labels: share of judges with another main label",
    ),
    Column(
        "cost_usd", F, "This answer's share of its call, US dollars; adds up per version; null when unknown"
    ),
    Column("n_tokens_in", I, "Its share of the call's prompt tokens; null when unknown"),
    Column("n_tokens_out", I, "Its share of the call's answer tokens; null when unknown"),
    Column(
        "n_tokens_cached", I, "Its share of the prompt tokens from the provider's cache; null when unknown"
    ),
    *ANSWERED,
    *SEEN,
)

DECIDED_BY = Column(
    "decided_by",
    S,
    "People differed: the adjudicator or the rule that decided, and who said what; null where they agree",
)
JUDGMENT = (
    Column("metric", S, "What was asked, e.g. helpfulness", nullable=False),
    Column(
        "judge",
        S,
        "Who answered: human, rule, recorded, ensemble or a model's name; import: and a name: a score that came with the transcript, or a label of another tool's judge",
        nullable=False,
    ),
    Column("rating_1to5", I, "The rating, integer 1–5; null unless this metric is a rating and was scored"),
    Column("value", F, "The value of a 0/1 or real-valued metric; null otherwise"),
    Column("label", S, "The main failure label, or 'no failure'"),
    Column("further_labels", NAMES, "Failure labels that apply as well"),
    Column(
        "status",
        JUDGMENT_STATUS,
        "scored, not_applicable, unscored, or disputed: people differ and no one has decided",
        nullable=False,
    ),
    Column("unscored_reason", S, "Why there is no value; null when scored"),
    Column("rationale", S, "The judge's words"),
    Column("evidence", S, "A quote from the transcript"),
    Column("evidence_verified", B, "The quote was found in the transcript; null without a quote"),
    Column(
        "is_effective", B, "Counts in aggregates: human > rule > model, ensemble or recorded", nullable=False
    ),
    Column("question_key", S, "Hash of what was asked: content, turn, metric, rubric, profile"),
    Column("rubric_hash", S, "Hash of the metric's rubric and answer schema"),
    Column("prompt_hash", S, "Hash of the exact prompt; null where no model was asked"),
    Column("judge_model", S, "The model, person or rule set that answered"),
    Column("judged_at", TIME, "When, ISO 8601"),
    *PAID,
    DECIDED_BY,
)

COUNTED = (
    Column("n_planned", I, "Trials that were planned: known, harness errors, unknown and refused records"),
    Column("n_known", I, "Of these with a known outcome"),
    Column("n_harness_errors", I, "Of these lost to the harness: unknown, and no failure of the agent"),
    Column("n_unknown", I, "Of these with an unknown outcome"),
    Column("n_refused", I, "Of these records refused at import, word-for-word copies apart"),
    Column("refused_sessions", NAMES, "Records refused at import by session: 'spring: 7'"),
)
"""What a rate rests on. Worst: all that are not known failed; best: all passed."""

PASS_K = (
    Column("k", I, "Attempts", nullable=False),
    Column("estimator", ESTIMATOR, "unbiased, plug_in, bayesian or pooled", nullable=False),
    Column(
        "estimand",
        ESTIMAND,
        "What estimate and interval are of: 'new tasks of this kind' or 'these tasks again'; null without an estimate",
    ),
    Column(
        "n_tasks",
        I,
        "Tasks that count, the same for every k: with enough trials of known outcome",
        nullable=False,
    ),
    Column(
        "n_tasks_excluded",
        I,
        "Tasks with too few: under the largest k shown for unbiased, none for the others",
        nullable=False,
    ),
    Column("excluded_tasks", NAMES, "The excluded tasks by name"),
    Column("n_trials", I, "Trials of known outcome in the tasks that count", nullable=False),
    Column("n_trials_unknown", I, "Trials left out of the denominator: outcome unknown", nullable=False),
    *COUNTED,
    Column("n_trials_judge_failed", I, "Of the unknown ones: a judgment that could have decided was lost"),
    Column("n_successes", I, "Correct trials in the tasks that count", nullable=False),
    Column("correctness_source", S, "outcome, interactions, goal_completion, or several joined by +"),
    Column("pass_at_k", F, "Probability that at least one of k trials is correct, 0–1"),
    Column("pass_at_k_low", F, "Lower 95 % bound (bayesian: credible_level); null without an interval"),
    Column("pass_at_k_high", F, "Upper 95 % bound (bayesian: credible_level); null without an interval"),
    Column("pass_at_k_worst", F, "pass_at_k if every trial that is not known had failed, 0–1"),
    Column("pass_at_k_best", F, "pass_at_k if every trial that is not known had passed, 0–1"),
    Column("pass_hat_k", F, "Probability that all k trials are correct, 0–1"),
    Column("pass_hat_k_low", F, "Lower 95 % bound (bayesian: credible_level); null without an interval"),
    Column("pass_hat_k_high", F, "Upper 95 % bound (bayesian: credible_level); null without an interval"),
    Column("pass_hat_k_worst", F, "pass_hat_k if every trial that is not known had failed, 0–1"),
    Column("pass_hat_k_best", F, "pass_hat_k if every trial that is not known had passed, 0–1"),
    Column("pass_at_1", F, "Mean over all tasks with a known trial of the share of correct trials, 0–1"),
    Column("pass_at_1_worst", F, "The same if every trial that is not known had failed, over all tasks"),
    Column("pass_at_1_best", F, "The same if every trial that is not known had passed"),
    Column("n_tasks_known", I, "Tasks behind pass_at_1: those with a known trial"),
    Column("interval", S, "What the bounds are and cover, or why there are none"),
    Column(
        "assessment",
        ASSESSMENT,
        "reliable, inconsistent, needs improvement or between (not rated); single run for k = 1; unknown where worst and best "
        "differ",
    ),
    Column("reason", S, "Why assessment or rank is unknown; null otherwise"),
)

STATUS = Column(
    "status", SCORE_STATUS, "published, provisional, incomplete, invalid or not_applicable", nullable=False
)
JUDGES = Column("judges", NAMES, "Who gave the effective ratings, sorted", nullable=False)
JUDGE_MODELS = Column(
    "judge_models",
    NAMES,
    "The models that gave effective ratings, those of recorded verdicts too, sorted; an ensemble is one",
)
MEASURED = (
    Column(
        "goal_completion",
        F,
        "Share of judged conversations whose goal was reached, 0–1; null when none judged",
    ),
    Column("n_goal_completion", I, "Conversations judged for goal completion", nullable=False),
    Column("n_goal_unknown", I, "Conversations not judged for it, harness errors apart"),
    Column("goal_completion_worst", F, "The share if all that is not known of n_planned had failed, 0–1"),
    Column("goal_completion_best", F, "The share if all that is not known of n_planned had passed, 0–1"),
    *(column for column in COUNTED if column.name not in ("n_known", "n_unknown")),
    Column("cost_usd", F, "What the admitted conversations cost, US dollars; null when any is unknown"),
    Column("n_conversations", I, "Admitted conversations: what cost_usd is the sum over"),
    Column(
        "judge",
        S,
        "Who gave the effective ratings, e.g. 'human + recorded'; 'none' without a rating",
        nullable=False,
    ),
    JUDGE_MODELS,
)
BENCHMARK = Column("benchmark_id", S, "The run that counts; null for undeclared sessions")
CALIBRATED = (
    Column(
        "calibration",
        CALIBRATION,
        "Whether the judges of this row were compared with people: calibrated, stale (rubric, prompt or model changed "
        "since) or not calibrated; null where only people and rules answered",
    ),
    Column(
        "calibration_metric",
        S,
        "Of the metrics with an interval of kappa the one whose interval reaches lowest; the figures below are its",
    ),
    Column("calibration_judge", S, "The judge that these figures are of"),
    Column("calibration_n", I, "Labels of this metric that were compared; null without one"),
    Column("calibration_kappa", F, "Kappa, of ratings with quadratic weights; null where it is not defined"),
    Column("calibration_kappa_low", F, "Lower 95 % bound"),
    Column("calibration_kappa_high", F, "Upper 95 % bound"),
    Column("n_metrics_calibrated", I, "Metrics of the row with an interval of kappa, of the same standing"),
    Column("n_metrics_judged", I, "Metrics that these judges decided for the row"),
)
"""How far the judges of a board's row agree with people, see `scores.judge_standing`."""
BOARD_FACTS = (
    *(Column(f"u{i}", F, f"U{i}: mean rating over sessions, 1–5; null when missing") for i in range(1, 7)),
    *(Column(f"d{i}", F, f"D{i}: Σ criteria / 15 × 100; null when missing") for i in range(1, 6)),
    Column(
        "session_dates",
        DATES,
        "Dates of the sessions that count, sorted; those without a date are left out",
    ),
    Column("evaluators", NAMES, "Who ran the sessions that count, sorted"),
    Column(
        "methodology_content_hash",
        S,
        "Content hash of the version that it was scored with, as in published.yaml",
    ),
    Column(
        "n_harness_failures_dropped",
        I,
        "Conversations dropped because the harness failed: their session is marked so, or their class is harness_error",
    ),
    Column("n_judged", I, "Judgments and ratings of judge models that count"),
    Column("n_seen_in_part", I, "Of them those that were made on part of the evidence (seen_share below 1)"),
    Column("least_seen_share", F, "Smallest share of the evidence behind one of them, 0–1; null without any"),
    Column(
        "n_sampled",
        I,
        "Conversations that judge models were asked about, where judge_sample asks for a share; null where all were",
    ),
    Column("n_to_sample", I, "Conversations that these were drawn from; null likewise"),
)
INPUTS = (
    Column("sessions_hash", S, "Hash of the agent's session files and of its entry in agents.yaml"),
    Column("ratings_hash", S, "Hash of people's ratings of the agent"),
    Column("judge_hash", S, "Hash of the judge models, the recorded verdicts and the metrics"),
    Column("methodology_hash", S, "Hash of the version's rubrics, tests, weights and penalties"),
    Column("code_version", S, "The release that computed it"),
)
"""What a score was made from; null in rows of releases that did not keep it."""
MISSING = Column("missing", NAMES, "What is missing or wrong, each named", nullable=False)
DISPUTED = Column("disputed", NAMES, "What people differ on and no one has decided, each with who said what")
DISCLOSED = (
    Column("repeatability_tested", B, "Disclosure after its check; null when unknown or not evidenced"),
    Column("u3_scope", U3_SCOPE, "single_message or multi_turn, after its check; null when not disclosed"),
    Column(
        "hallucination_passed", B, "Result of the hallucination stress test; null when missing or not judged"
    ),
)
COMPOSED = (
    Column("universal_0to100", F, "ΣU / 30 × 100; null unless all six are rated"),
    Column("domain_0to100", F, "Mean of D1–D5; null unless all fifteen criteria are rated"),
    Column("raw_composite_score", F, "Weighted sum before the penalty, 0–100"),
    Column("repeatability_penalty", F, "Points taken off, 0 or as the version says; null when undisclosed"),
    Column("composite_score", F, "The headline, 0–100, as a float of the exact fraction"),
    Column("composite_exact", S, "The headline as an exact fraction, 'numerator/denominator'"),
)
