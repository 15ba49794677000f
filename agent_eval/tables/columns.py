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

AGENT = Column("agent_id", S, "Agent id, as in agents.yaml", nullable=False)
VERSION = Column("methodology_version", S, "Methodology version, e.g. 1.3.0", nullable=False)
CONVERSATION = Column("conversation_id", S, "Conversation id, unique per agent", nullable=False)
SESSION = Column("session_id", S, "Name of the session folder", nullable=False)
BY_PAIR = ("agent_id", "methodology_version")

ANSWERED = (
    Column(
        "response_model",
        S,
        "Provider's name of the model that answered, e.g. gpt-4o-mini-2024-07-18; null if unknown",
    ),
    Column(
        "system_fingerprint",
        S,
        "Provider's fingerprint of the system that answered; null without one",
        is_content=False,
    ),
    Column(
        "dropped_parameters",
        NAMES,
        "Parameters omitted from the request because the model does not support them, e.g. temperature; null if unknown",
    ),
)
SEEN = (
    Column(
        "seen_share",
        F,
        "Share of the judged content that the model was shown, by characters, 0–1; an image, recording or file counts as "
        "6,400 characters; null if no model was asked, and in rows of earlier releases",
    ),
    Column(
        "n_left_out",
        I,
        "Messages, calls and attachments that the model was not shown in full; null if seen_share is",
    ),
)
PAID = (
    Column(
        "disagreement",
        F,
        "For an ensemble or repeated questions: highest minus lowest rating or value, or share of answers with another main label",
    ),
    Column(
        "cost_usd",
        F,
        "Answer's share of the cost of its call, US dollars; can be summed per version; null if unknown",
        is_content=False,
    ),
    Column("n_tokens_in", I, "Answer's share of the call's prompt tokens; null if unknown", is_content=False),
    Column("n_tokens_out", I, "Answer's share of the call's reply tokens; null if unknown", is_content=False),
    Column(
        "n_tokens_cached",
        I,
        "Answer's share of the prompt tokens read from the provider's cache; null if unknown",
        is_content=False,
    ),
    *ANSWERED,
    *SEEN,
    Column(
        "earlier_profile",
        S,
        "Version of the judge profile in whose wording the question was asked, if an answer to an earlier wording is kept "
        "(setting keep_answers); null for other answers",
    ),
)

DECIDED_BY = Column(
    "decided_by",
    S,
    "Adjudicator or rule that decided between raters, with each rater's answer; null if raters agree",
)
STEP = (
    Column(
        "message_index",
        I,
        "0-based index, among all messages of the conversation, of the message or call that the quote is from; null "
        "unless the quote was found, and in rows of earlier releases",
    ),
    Column(
        "speaker",
        S,
        "Name of the agent, user or tool whose message that is, as in the transcript; the role if it has no name; null if message_index is",
    ),
)
CAUSE = (
    Column("cause", S, "What went wrong, in general words; null unless the judge or rule says so"),
    Column("should_have", S, "What a good agent would have done; null unless the judge or rule says so"),
)
JUDGMENT = (
    Column("metric", S, "Metric, e.g. helpfulness", nullable=False),
    Column(
        "judge",
        S,
        "Source of the answer: human, rule, recorded, ensemble or a model's name; 'import:' and a name for a score imported with the transcript or a label by another tool's judge",
        nullable=False,
    ),
    Column("rating_1to5", I, "Rating, integer 1–5; null unless the metric is a rating and was scored"),
    Column("value", F, "Value of a 0/1 or real-valued metric; null for other metrics"),
    Column("label", S, "Main failure label, or 'no failure'; null for metrics without labels"),
    Column("further_labels", NAMES, "Additional failure labels"),
    *CAUSE,
    Column(
        "further_causes",
        NAMES,
        "The same as cause for each of further_labels, in their order; null if unknown",
    ),
    Column(
        "further_should_have", NAMES, "The same as should_have for each of further_labels; null if unknown"
    ),
    Column(
        "status",
        JUDGMENT_STATUS,
        "scored, not_applicable, unscored, or disputed (people disagree and the dispute is not resolved)",
        nullable=False,
    ),
    Column("unscored_reason", S, "Reason for a missing answer; null if scored"),
    Column("rationale", S, "Judge's rationale"),
    Column("evidence", S, "Quote from the transcript"),
    Column("evidence_verified", B, "Whether the quote was found in the transcript; null without a quote"),
    *STEP,
    Column(
        "is_effective",
        B,
        "Whether the answer counts in aggregates; priority: human > rule > model, ensemble or recorded",
        nullable=False,
    ),
    Column("question_key", S, "Hash of the question: content, turn, metric, rubric and judge profile"),
    Column("rubric_hash", S, "Hash of the metric's rubric and answer schema"),
    Column("prompt_hash", S, "Hash of the exact prompt; null if no model was asked"),
    Column("judge_model", S, "Model, person or rule set that answered"),
    Column("judged_at", TIME, "Time of the answer, ISO 8601", is_content=False),
    *PAID,
    DECIDED_BY,
    Column(
        "is_counted",
        B,
        "Whether the answer enters means and rates, where this differs from is_effective: where a rating sheet drew the part, the judge's answer does, and people's labels correct the mean; null elsewhere",
    ),
    Column(
        "label_weight",
        F,
        "Number of parts that a person's label represents, because a rating sheet drew the part; null for other answers",
    ),
)

COUNTED = (
    Column(
        "n_planned", I, "Planned trials: known outcomes, harness errors, unknown outcomes and refused records"
    ),
    Column("n_known", I, "Planned trials with a known outcome"),
    Column(
        "n_harness_errors",
        I,
        "Planned trials lost to the harness; their outcome is unknown and does not count as a failure",
    ),
    Column("n_unknown", I, "Planned trials with an unknown outcome for other reasons"),
    Column(
        "n_unexplained_errors",
        I,
        "Trials that ended in an error of unknown cause; they count as their source declares (in n_known), else in n_unknown",
    ),
    Column("n_refused", I, "Planned trials whose records were refused at import, except verbatim copies"),
    Column("refused_sessions", NAMES, "Numbers of records refused at import by session, e.g. 'spring: 7'"),
)
"""Counts behind a rate. The worst case counts all unknown trials as failed, the best case as passed, together with the
failures that ended in an error of unknown cause."""

PASS_K = (
    Column("k", I, "Number of attempts", nullable=False),
    Column("estimator", ESTIMATOR, "unbiased, plug_in, bayesian or pooled", nullable=False),
    Column(
        "estimand",
        ESTIMAND,
        "Target of the estimate and interval: 'new tasks of this kind' or 'these tasks again'; null without an estimate",
    ),
    Column(
        "n_tasks",
        I,
        "Tasks in the estimate, which have enough trials of known outcome: at least k for unbiased",
        nullable=False,
    ),
    Column(
        "n_tasks_excluded",
        I,
        "Excluded tasks: those with fewer than k known trials for unbiased, and those without a known trial otherwise",
        nullable=False,
    ),
    Column("excluded_tasks", NAMES, "Names of the excluded tasks"),
    Column("n_trials", I, "Trials of known outcome in the tasks of the estimate", nullable=False),
    Column(
        "n_trials_unknown", I, "Trials of unknown outcome, which are not in the denominator", nullable=False
    ),
    *COUNTED,
    Column(
        "n_without_task",
        I,
        "Trials of the agent without a task id; they belong to no task set and count in no estimate",
    ),
    Column(
        "n_trials_judge_failed",
        I,
        "Trials of unknown outcome for which a judgment that could have decided was lost",
    ),
    Column(
        "n_successes",
        I,
        "Correct trials in the tasks of the estimate, before labels of people correct the rate",
        nullable=False,
    ),
    Column(
        "correctness_source",
        S,
        "Source of the outcomes: outcome, interactions, goal_completion, or several joined by +",
    ),
    Column("pass_at_k", F, "Probability that at least one of k trials is correct, 0–1"),
    Column(
        "pass_at_k_low",
        F,
        "Lower bound of the 95 % interval (credible_level for bayesian and pooled), 0–1; null without an interval",
    ),
    Column(
        "pass_at_k_high",
        F,
        "Upper bound of the 95 % interval (credible_level for bayesian and pooled), 0–1; null without an interval",
    ),
    Column("pass_at_k_worst", F, "pass_at_k with every unknown trial counted as failed, 0–1"),
    Column(
        "pass_at_k_best",
        F,
        "pass_at_k with every unknown trial, and every failure by an error of unknown cause, counted as passed, 0–1",
    ),
    Column(
        "pass_at_1_of_judge",
        F,
        "pass@1 before the labels of rating sheets correct it; null if no such label corrects this row",
    ),
    Column(
        "n_labels_drawn",
        I,
        "Labels of people that correct the row, because rating sheets drew their trials; null if none does. Rows with k ≥ 2, and posteriors, are never corrected",
    ),
    Column("pass_hat_k", F, "Probability that all k trials are correct, 0–1"),
    Column(
        "pass_hat_k_low",
        F,
        "Lower bound of the 95 % interval (credible_level for bayesian and pooled), 0–1; null without an interval",
    ),
    Column(
        "pass_hat_k_high",
        F,
        "Upper bound of the 95 % interval (credible_level for bayesian and pooled), 0–1; null without an interval",
    ),
    Column("pass_hat_k_worst", F, "pass_hat_k with every unknown trial counted as failed, 0–1"),
    Column(
        "pass_hat_k_best",
        F,
        "pass_hat_k with every unknown trial, and every failure by an error of unknown cause, counted as passed, 0–1",
    ),
    Column("pass_at_1", F, "Mean share of correct trials over all tasks with a known trial, 0–1"),
    Column("pass_at_1_worst", F, "pass_at_1 over all tasks with every unknown trial counted as failed, 0–1"),
    Column(
        "pass_at_1_best",
        F,
        "pass_at_1 over all tasks with every unknown trial, and every failure by an error of unknown cause, counted as passed, 0–1",
    ),
    Column("n_tasks_known", I, "Tasks with a known trial, over which pass_at_1 is averaged"),
    Column("interval", S, "Kind and target of the interval, or the reason why there is none"),
    Column(
        "assessment",
        ASSESSMENT,
        "reliable, inconsistent, needs improvement or between (not rated); single run for k = 1; unknown if the worst and "
        "best case would be assessed differently",
    ),
    Column(
        "reason", S, "Reason why there is no estimate, or why the assessment or rank is unknown; else null"
    ),
)

STATUS = Column(
    "status", SCORE_STATUS, "published, provisional, incomplete, invalid or not_applicable", nullable=False
)
JUDGES = Column("judges", NAMES, "Judges that gave the effective ratings, sorted", nullable=False)
JUDGE_MODELS = Column(
    "judge_models",
    NAMES,
    "Models that gave effective ratings, including models of recorded verdicts, sorted; an ensemble counts as one",
)
MEASURED = (
    Column(
        "goal_completion",
        F,
        "Share of judged conversations whose goal was reached, 0–1; null if none was judged",
    ),
    Column(
        "goal_completion_of_judge",
        F,
        "goal_completion before the labels of rating sheets correct it; null if no such label does",
    ),
    Column("n_goal_completion", I, "Conversations judged for goal completion", nullable=False),
    Column("n_goal_unknown", I, "Conversations not judged for goal completion, except harness errors"),
    Column(
        "goal_completion_worst",
        F,
        "Share of n_planned whose goal was reached, with unknown ones counted as failed, 0–1",
    ),
    Column(
        "goal_completion_best",
        F,
        "Share of n_planned whose goal was reached, with unknown ones and failures by an error of unknown cause counted as passed, 0–1",
    ),
    *(column for column in COUNTED if column.name not in ("n_known", "n_unknown")),
    Column(
        "cost_usd", F, "Total cost of the admitted conversations, US dollars; null if any cost is unknown"
    ),
    Column("n_conversations", I, "Admitted conversations, over which cost_usd is summed"),
    Column(
        "judge",
        S,
        "Judges that gave the effective ratings, e.g. 'human + recorded'; 'none' without a rating",
        nullable=False,
    ),
    JUDGE_MODELS,
)
BENCHMARK = Column("benchmark_id", S, "Benchmark whose sessions count; null without declared sessions")
CALIBRATED = (
    Column(
        "calibration",
        CALIBRATION,
        "Whether the judges of this row are calibrated against people: calibrated, stale (rubric, prompt or model has changed "
        "since) or not calibrated; null if only people and rules answered",
    ),
    Column(
        "calibration_metric",
        S,
        "Metric that the calibration figures belong to: the one with the lowest lower bound of kappa, or with the most labels if none has an interval",
    ),
    Column("calibration_judge", S, "Judge that the calibration figures belong to"),
    Column("calibration_n", I, "Compared labels of this metric; null without a label"),
    Column(
        "calibration_agreement", F, "Share of these labels with the judge's answer, 0–1; null if undefined"
    ),
    Column("calibration_kappa", F, "Kappa, at most 1, with quadratic weights for ratings; null if undefined"),
    Column("calibration_kappa_low", F, "Lower 95 % bound of kappa"),
    Column("calibration_kappa_high", F, "Upper 95 % bound of kappa"),
    Column(
        "n_metrics_calibrated", I, "Metrics of the row with an interval of kappa and the same calibration"
    ),
    Column("n_metrics_judged", I, "Metrics of the row that these judges answered"),
)
"""Agreement of the judges of a board row with people; see `scores.judge_standing`."""
BOARD_FACTS = (
    *(Column(f"u{i}", F, f"U{i}: mean rating over sessions, 1–5; null if missing") for i in range(1, 7)),
    *(Column(f"d{i}", F, f"D{i}: Σ criteria / 15 × 100; null if missing") for i in range(1, 6)),
    Column(
        "session_dates",
        DATES,
        "Dates of the sessions that count, sorted; sessions without a date are omitted",
    ),
    Column("evaluators", NAMES, "Evaluators of the sessions that count, sorted"),
    Column(
        "suites",
        NAMES,
        "Benchmark suites of the sessions that count: name, version, hash, and public if agents may have been trained on it",
    ),
    Column(
        "methodology_content_hash",
        S,
        "Content hash of the methodology version used for scoring, as in published.yaml",
    ),
    Column(
        "n_harness_failures_dropped",
        I,
        "Conversations excluded because the harness failed: their session is marked as failed, or their outcome class is harness_error",
    ),
    Column("n_judged", I, "Effective judgments and ratings by judge models"),
    Column(
        "n_seen_in_part",
        I,
        "Effective judgments and ratings based on part of the evidence (seen_share below 1)",
    ),
    Column(
        "n_earlier_wording",
        I,
        "Effective judgments and ratings that answer an earlier wording of their question (setting keep_answers); null if none",
    ),
    Column(
        "least_seen_share",
        F,
        "Smallest seen_share of the effective judgments and ratings, 0–1; null without any",
    ),
    Column(
        "n_sampled",
        I,
        "Conversations that judge models were asked about if judge_sample limits them to a share; null if all were",
    ),
    Column("n_to_sample", I, "Conversations that the sample was drawn from; null if n_sampled is"),
    Column(
        "several_models",
        NAMES,
        "Judges whose answers came from several models, as their servers name them: 'openai/x answered by 2 models: a, b'",
    ),
    Column(
        "dropped_runs",
        NAMES,
        "Sessions and runs of the agent that do not count, each with the reason: harness failures, superseded runs, "
        "sessions for other versions that are later than the run that counts, and records rejected at import",
    ),
)
INPUTS = (
    Column("sessions_hash", S, "Hash of the agent's session files and its entry in agents.yaml"),
    Column("ratings_hash", S, "Hash of the human ratings of the agent"),
    Column("judge_hash", S, "Hash of the judge models, the recorded verdicts and the metrics"),
    Column("methodology_hash", S, "Hash of the version's rubrics, tests, weights and penalties"),
    Column("code_version", S, "Release of the package that computed the row"),
)
"""Inputs of a score; null in rows of releases that did not store them."""
MISSING = Column("missing", NAMES, "List of missing or invalid parts, each with the reason", nullable=False)
DISPUTED = Column(
    "disputed", NAMES, "List of unresolved disagreements between people, each with the raters' answers"
)
DISCLOSED = (
    Column("repeatability_tested", B, "Checked disclosure; null if unknown or not supported by the sessions"),
    Column(
        "u3_scope",
        U3_SCOPE,
        "Checked disclosure of U3's scope: single_message or multi_turn; null if not disclosed",
    ),
    Column(
        "hallucination_passed", B, "Result of the hallucination stress test; null if missing or not judged"
    ),
)
COMPOSED = (
    Column("universal_0to100", F, "ΣU / 30 × 100; null unless all six are rated"),
    Column("domain_0to100", F, "Mean of D1–D5; null unless all fifteen criteria are rated"),
    Column("raw_composite_score", F, "Weighted sum before the penalty, 0–100"),
    Column(
        "repeatability_penalty",
        F,
        "Points subtracted: 0, or those that the version defines; null if undisclosed",
    ),
    Column("composite_score", F, "Composite after the penalty, 0–100, as a float of the exact fraction"),
    Column("composite_exact", S, "Composite after the penalty as an exact fraction, 'numerator/denominator'"),
)
