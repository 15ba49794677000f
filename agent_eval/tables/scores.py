"""Declare the tables of tool correctness, assertions, scores and reliability."""

from typing import Any

from agent_eval.tables.columns import (
    AGENT,
    BENCHMARK,
    BOARD_FACTS,
    BY_PAIR,
    COMPOSED,
    CONVERSATION,
    DISCLOSED,
    DISPUTED,
    INPUTS,
    JUDGE_MODELS,
    JUDGES,
    MEASURED,
    MISSING,
    NAMES,
    NUMBERS,
    PASS_K,
    STATUS,
    VERSION,
    B,
    F,
    I,
    S,
)
from agent_eval.tables.contract import Column, Table
from agent_eval.tables.vocabularies import ASSERTION_KIND, RESULT, TOOL_STATUS

_FIGURES = {
    "base_rate": "Share that people call positive, 0–1",
    "raw_agreement": "Share of pairs with equal answers, 0–1",
    "kappa": "Cohen's kappa, at most 1; 0: agreement by chance",
    "weighted_kappa": "Kappa of numbers with quadratic weights",
    "alpha": "Krippendorff's alpha of the judge and the people: nominal, ordinal for ratings, interval for real values",
    "sensitivity": "Share that the judge calls positive of what people call so, 0–1",
    "specificity": "Share that the judge does not call positive of what people do not, 0–1",
    "mean_bias": "Mean of judge minus person, in the metric's units",
    "length_correlation": "Rank correlation of the judge's answer and the length of the reply, −1 to 1",
    "length_correlation_human": "The same of the people's answers",
}
_AGREED = [
    column
    for name, meaning in _FIGURES.items()
    for column in (
        Column(name, F, f"{meaning}; null where it is not defined"),
        Column(f"{name}_low", F, "Lower 95 % bound; null with fewer than five conversations"),
        Column(f"{name}_high", F, "Upper 95 % bound"),
    )
]

DECLARED: tuple[Table[Any], ...] = (
    Table(
        "tool_correctness",
        "one row per turn (turn_index null: whole conversation) with expected tools",
        ("methodology_version", "agent_id", "conversation_id", "turn_index"),
        (
            VERSION,
            AGENT,
            CONVERSATION,
            Column("turn_index", I, "0-based; null = the whole conversation"),
            Column("selection", F, "Jaccard of tool names as multisets, 0–1"),
            Column("parameters", F, "Share of expected arguments that are right, 0–1"),
            Column("sequence", F, "Relative order of the expected calls, 0–1; 1 when order is free"),
            Column("utilisation", F, "1 when results reach the answer, else 0; null when not judged"),
            Column("overall", F, "Weighted mean of known_aspects, 0–1; null without one"),
            Column("known_aspects", NAMES, "Weighted aspects that overall is the mean of"),
            Column("unknown_aspects", NAMES, "Weighted aspects that are not known"),
            Column(
                "is_correct",
                B,
                "False when the known aspects suffice to miss tool_threshold, true when all are known and reach it; "
                "else null",
            ),
            Column("status", TOOL_STATUS, "scored, not_applicable or unscored", nullable=False),
            Column("reason", S, "Why there is no score, what is not known, or what was wrong"),
        ),
        BY_PAIR,
    ),
    Table(
        "assertion_results",
        "one row per demand that `expected` makes of an admitted conversation",
        ("methodology_version", "agent_id", "conversation_id", "assertion_index"),
        (
            VERSION,
            AGENT,
            CONVERSATION,
            Column(
                "assertion_index", I, "0-based within the conversation, as it declares them", nullable=False
            ),
            Column("turn_index", I, "0-based; null = the whole conversation"),
            Column("slot", S, "D1..D5 or a required test; null for undeclared sessions"),
            Column(
                "kind",
                ASSERTION_KIND,
                "tools (expected calls), trajectory (an object with mode, tools, forbidden) or text",
                nullable=False,
            ),
            Column("assertion", S, "What is demanded, in words"),
            Column("result", RESULT, "passed, failed or unknown", nullable=False),
            Column("reason", S, "What is missing or wrong, or why it is unknown; null when passed"),
            Column("diff", S, "One line per call, made or missed: +, -, ~ (out of order) or ! (forbidden)"),
        ),
        BY_PAIR,
    ),
    Table(
        "universal_scores",
        "one row per agent and version",
        ("methodology_version", "agent_id"),
        (
            VERSION,
            AGENT,
            Column("n_sessions", I, "Sessions averaged", nullable=False),
            *(
                Column(f"u{i}", F, f"U{i}: mean rating over sessions, 1–5; null when missing")
                for i in range(1, 7)
            ),
            Column("session_ids", NAMES, "The sessions, sorted"),
            Column(
                "session_universal", NUMBERS, "U of each of session_ids, 0–100; null unless all six are rated"
            ),
            Column("universal_0to100", F, "ΣU / 30 × 100; null unless all six are rated"),
            Column("universal_exact", S, "The same as an exact fraction"),
            JUDGES,
            JUDGE_MODELS,
            Column("n_unscored", I, "Ratings lost to a failure of judge or harness", nullable=False),
            MISSING,
            Column("is_disputed", B, "Ratings are missing, and all of them since people differ"),
        ),
        BY_PAIR,
    ),
    Table(
        "domain_scores",
        "one row per agent and version",
        ("methodology_version", "agent_id"),
        (
            VERSION,
            AGENT,
            Column("template", S, "Domain template; null when the version has none for the category"),
            Column("criteria", NAMES, "Names of the three criteria, in order", nullable=False),
            *(Column(f"d{i}", F, f"D{i}: Σ criteria / 15 × 100; null when missing") for i in range(1, 6)),
            *(
                Column(f"d{i}_c{j}", F, f"D{i}, criterion {j}: mean rating over sessions, 1–5")
                for i in range(1, 6)
                for j in range(1, 4)
            ),
            Column("session_ids", NAMES, "The sessions, sorted"),
            Column(
                "session_domain", NUMBERS, "D of each of session_ids, 0–100; null unless all are complete"
            ),
            Column("domain_0to100", F, "Mean of D1–D5; null unless all are complete"),
            Column("domain_exact", S, "The same as an exact fraction"),
            JUDGES,
            JUDGE_MODELS,
            Column("n_unscored", I, "Ratings lost to a failure of judge or harness", nullable=False),
            MISSING,
            Column("is_disputed", B, "Ratings are missing, and all of them since people differ"),
        ),
        BY_PAIR,
    ),
    Table(
        "composite_scores",
        "one row per agent and version",
        ("methodology_version", "agent_id"),
        (
            VERSION,
            AGENT,
            Column("template", S, "Domain template; null when none"),
            BENCHMARK,
            Column("n_sessions", I, "Sessions averaged", nullable=False),
            Column("session_ids", NAMES, "The sessions, sorted"),
            Column(
                "session_scores", NUMBERS, "Raw composite of each of session_ids; null unless rated in full"
            ),
            Column(
                "point_0to100",
                F,
                "The most that one rating point moves the raw composite of one session; null without one",
            ),
            *COMPOSED,
            Column("raw_composite_exact", S, "The raw composite as an exact fraction"),
            *DISCLOSED,
            *MEASURED,
            *BOARD_FACTS,
            Column(
                "has_entered",
                B,
                "A session was run for the version or for any; without one it is on no board",
            ),
            STATUS,
            MISSING,
            DISPUTED,
            Column("warnings", NAMES, "What does not bar publication but should be known", nullable=False),
            *INPUTS,
        ),
        BY_PAIR,
    ),
    Table(
        "reliability",
        "one row per agent, version, task set, k and estimator",
        ("methodology_version", "agent_id", "task_set", "k", "estimator"),
        (
            VERSION,
            AGENT,
            Column("task_set", S, "The set of tasks", nullable=False),
            *PASS_K,
            Column("tasks", NAMES, "The tasks that count, by name"),
        ),
        BY_PAIR,
    ),
    Table(
        "judge_calibration",
        "one row per version, metric, judge and rubric, of judges whose parts people labelled too",
        ("methodology_version", "metric", "judge", "rubric_hash"),
        (
            VERSION,
            Column("metric", S, "What was judged", nullable=False),
            Column("judge", S, "The judge; human: raters compared with each other", nullable=False),
            Column(
                "rubric_hash",
                S,
                "Hash of the rubric that the judge was asked with; null where it is not known",
            ),
            Column(
                "n",
                I,
                "Pairs of an answer of the judge and one of a person about the same part",
                nullable=False,
            ),
            Column(
                "n_conversations",
                I,
                "Conversations of the pairs: the clusters of all intervals",
                nullable=False,
            ),
            Column("n_raters", I, "People", nullable=False),
            Column(
                "n_weighted",
                I,
                "Of the pairs those whose part was drawn for a rating sheet: figures are weighted by the sampling, others have weight 1",
            ),
            Column(
                "is_stale",
                B,
                "Rubric, prompt or model changed since: the row is of an earlier run, or people labelled under another rubric",
            ),
            Column(
                "confusion",
                S,
                "JSON array of {judge, human, n}: how often each pair of answers occurs; null for real values and above 400 cells",
            ),
            Column(
                "positive",
                S,
                "What base rate, sensitivity and specificity are of: '1', or 'failure'; null for other answers",
            ),
            *_AGREED,
        ),
        ("methodology_version",),
    ),
    Table(
        "quality_summary",
        "one row per agent, version and quantity: success, each metric, the failure rate of each failure metric, cost",
        ("methodology_version", "agent_id", "quantity"),
        (
            VERSION,
            AGENT,
            Column(
                "quantity",
                S,
                "success rate, a metric, 'failure rate: ' and a metric, or cost_usd",
                nullable=False,
            ),
            Column("scale_low", F, "Lower end of the quantity's scale", nullable=False),
            Column("scale_high", F, "Upper end; null for cost_usd: US dollars per conversation"),
            Column(
                "mean",
                F,
                "Mean over conversations, of each the mean of its answers, on the scale; null when none is known",
            ),
            Column(
                "low", F, "Lower 95 % bound of the mean over new sessions; null with fewer than two clusters"
            ),
            Column("high", F, "Upper 95 % bound"),
            Column("n_conversations", I, "Conversations behind the mean", nullable=False),
            Column(
                "n_clusters", I, "Clusters of conversations that may depend on each other", nullable=False
            ),
            Column(
                "clustered_by",
                S,
                "session, or in a single session: task or conversation; null without a mean",
            ),
            Column("n_scored", I, "Answers: of turns, or of conversations", nullable=False),
            Column(
                "n_unscored",
                I,
                "Answers that were lost or that people differ on, and unknown outcomes",
                nullable=False,
            ),
            Column(
                "n_unasked",
                I,
                "Answers that only a judge model could give, and none was asked",
                nullable=False,
            ),
            Column(
                "unscored_share", F, "n_unscored / (n_scored + n_unscored), 0–1; null when none was asked"
            ),
            Column(
                "judges",
                NAMES,
                "Who answered; of the success rate, what decided: see correctness_source",
                nullable=False,
            ),
        ),
        BY_PAIR,
    ),
)
