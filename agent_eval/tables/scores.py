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
from agent_eval.tables.vocabularies import ASSERTION_KIND, CALIBRATION_REFERENCE, RESULT, TOOL_STATUS

_FIGURES = {
    "base_rate": "Share of parts that people label positive, 0–1",
    "raw_agreement": "Share of pairs with equal answers, 0–1",
    "kappa": "Cohen's kappa, at most 1; 0 means agreement by chance",
    "weighted_kappa": "Cohen's kappa with quadratic weights for numbers, at most 1",
    "alpha": "Krippendorff's alpha of the judge and the people, at most 1: ordinal for ratings, interval for real values, else nominal",
    "sensitivity": "Share of parts labelled positive by the judge among those labelled positive by people, 0–1",
    "specificity": "Share of parts labelled negative by the judge among those labelled negative by people, 0–1",
    "mean_bias": "Mean of judge minus person, in the metric's units",
    "length_correlation": "Rank correlation of the judge's answers with the length of the reply, −1 to 1",
    "length_correlation_human": "Rank correlation of people's answers with the length of the reply, −1 to 1",
}
_AGREED = [
    column
    for name, meaning in _FIGURES.items()
    for column in (
        Column(name, F, f"{meaning}; null if undefined"),
        Column(f"{name}_low", F, f"Lower 95 % bound of {name}; null with fewer than five conversations"),
        Column(f"{name}_high", F, f"Upper 95 % bound of {name}; null with fewer than five conversations"),
    )
]

DECLARED: tuple[Table[Any], ...] = (
    Table(
        "tool_correctness",
        "one row per turn, or whole conversation (turn_index null), with expected tools",
        ("methodology_version", "agent_id", "conversation_id", "turn_index"),
        (
            VERSION,
            AGENT,
            CONVERSATION,
            Column("turn_index", I, "0-based index of the turn; null for the whole conversation"),
            Column("selection", F, "Jaccard index of tool names as multisets, 0–1"),
            Column(
                "parameters",
                F,
                "Share of expected arguments that are correct, 0–1; calls without any count as one",
            ),
            Column(
                "sequence",
                F,
                "Share of expected calls made in the expected order, 0–1; of those made, if order does not matter",
            ),
            Column(
                "utilisation", F, "1 if results reach the answer, else 0; null if neither judged nor declared"
            ),
            Column("overall", F, "Weighted mean of known_aspects, 0–1; null without known aspects"),
            Column("known_aspects", NAMES, "Known aspects with a weight, which overall includes"),
            Column("unknown_aspects", NAMES, "Unknown aspects with a weight"),
            Column(
                "is_correct",
                B,
                "False if overall cannot reach tool_threshold, true if all aspects are known and overall reaches it, null "
                "otherwise",
            ),
            Column("status", TOOL_STATUS, "scored, not_applicable or unscored", nullable=False),
            Column("reason", S, "Reason for a missing score, an unknown aspect or a wrong call"),
        ),
        BY_PAIR,
    ),
    Table(
        "assertion_results",
        "one row per requirement in `expected` of an admitted conversation",
        ("methodology_version", "agent_id", "conversation_id", "assertion_index"),
        (
            VERSION,
            AGENT,
            CONVERSATION,
            Column(
                "assertion_index",
                I,
                "0-based index within the conversation, in declared order",
                nullable=False,
            ),
            Column("turn_index", I, "0-based index of the turn; null for the whole conversation"),
            Column("slot", S, "D1..D5 or a required test; null for undeclared sessions"),
            Column(
                "kind",
                ASSERTION_KIND,
                "tools (expected calls), trajectory (an object with mode, tools, forbidden) or text (forbidden texts, or a sentence)",
                nullable=False,
            ),
            Column("assertion", S, "Requirement in words"),
            Column("result", RESULT, "passed, failed or unknown", nullable=False),
            Column("reason", S, "Reason for a failed or unknown result; null if passed"),
            Column(
                "diff",
                S,
                "One line per actual or missing call, marked by + (extra), - (missing), ~ (out of order) or ! (forbidden)",
            ),
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
                Column(f"u{i}", F, f"U{i}: mean rating over sessions, 1–5; null if missing")
                for i in range(1, 7)
            ),
            Column("session_ids", NAMES, "Sessions, sorted"),
            Column(
                "session_universal",
                NUMBERS,
                "U of each session in session_ids, 0–100; null unless all six are rated",
            ),
            Column("universal_0to100", F, "ΣU / 30 × 100; null unless all six are rated"),
            Column("universal_exact", S, "universal_0to100 as an exact fraction"),
            JUDGES,
            JUDGE_MODELS,
            Column("n_unscored", I, "Ratings lost to a failure of judge or harness", nullable=False),
            MISSING,
            Column("is_disputed", B, "Whether ratings are missing, all of them because people disagree"),
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
            Column("template", S, "Domain template; null if the version has none for the category"),
            Column("criteria", NAMES, "Names of the three criteria, in order", nullable=False),
            *(Column(f"d{i}", F, f"D{i}: Σ criteria / 15 × 100; null if missing") for i in range(1, 6)),
            *(
                Column(f"d{i}_c{j}", F, f"D{i}, criterion {j}: mean rating over sessions, 1–5")
                for i in range(1, 6)
                for j in range(1, 4)
            ),
            Column("session_ids", NAMES, "Sessions, sorted"),
            Column(
                "session_domain",
                NUMBERS,
                "D of each session in session_ids, 0–100; null unless all are complete",
            ),
            Column("domain_0to100", F, "Mean of D1–D5; null unless all are complete"),
            Column("domain_exact", S, "domain_0to100 as an exact fraction"),
            JUDGES,
            JUDGE_MODELS,
            Column("n_unscored", I, "Ratings lost to a failure of judge or harness", nullable=False),
            MISSING,
            Column("is_disputed", B, "Whether ratings are missing, all of them because people disagree"),
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
            Column("template", S, "Domain template; null without one"),
            BENCHMARK,
            Column("n_sessions", I, "Sessions averaged", nullable=False),
            Column("session_ids", NAMES, "Sessions, sorted"),
            Column(
                "session_scores",
                NUMBERS,
                "Raw composite of each session in session_ids, 0–100; null unless fully rated",
            ),
            Column(
                "point_0to100",
                F,
                "Largest change of a session's raw composite by one rating point, 0–100; null without a composite",
            ),
            *COMPOSED,
            Column("raw_composite_exact", S, "raw_composite_score as an exact fraction"),
            *DISCLOSED,
            *MEASURED,
            *BOARD_FACTS,
            Column(
                "has_entered",
                B,
                "Whether a session was run for this version or for any; if not, the agent is not on the board",
            ),
            STATUS,
            MISSING,
            DISPUTED,
            Column("warnings", NAMES, "Warnings that do not prevent publication", nullable=False),
            Column(
                "text_sketches",
                NAMES,
                "Sketches of the agent's texts in slots and tests, by which boards find sessions copied from another agent: "
                "date, session, conversations (negative if the session does not count)/all of the session, words, shingles, hashes",
            ),
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
            Column("task_set", S, "Task set", nullable=False),
            *PASS_K,
            Column("tasks", NAMES, "Names of the tasks in the estimate"),
        ),
        BY_PAIR,
    ),
    Table(
        "judge_calibration",
        "one row per version, metric, judge and rubric, for judges whose parts people also labelled, or whose outcome is declared",
        ("methodology_version", "metric", "judge", "rubric_hash", "reference"),
        (
            VERSION,
            Column("metric", S, "Judged metric", nullable=False),
            Column("judge", S, "Judge, or 'human' for raters compared with each other", nullable=False),
            Column("rubric_hash", S, "Hash of the rubric used by the judge; null if unknown"),
            Column(
                "reference",
                CALIBRATION_REFERENCE,
                "What the judge is compared with: people, or declared outcomes (setting judge_outcome_sample); null, in rows of earlier releases only, for people",
            ),
            Column(
                "n",
                I,
                "Pairs of a judge's and a person's answer, or a declared outcome, about the same part",
                nullable=False,
            ),
            Column(
                "n_conversations",
                I,
                "Conversations of the pairs, which are the clusters of all intervals",
                nullable=False,
            ),
            Column("n_raters", I, "Number of people; 0 for declared outcomes", nullable=False),
            Column(
                "n_weighted",
                I,
                "Pairs whose part was drawn for a rating sheet and has a sampling weight; other pairs have weight 1",
            ),
            Column(
                "is_stale",
                B,
                "Whether the row is of an earlier run, before the rubric, prompt or model changed, or people labelled under another rubric",
            ),
            Column(
                "confusion",
                S,
                "JSON array of {judge, human, n} with the number of each pair of answers; null for real values and for more than 400 cells",
            ),
            Column(
                "positive",
                S,
                "Answer that base rate, sensitivity and specificity refer to: '1' or 'failure'; null for other answers",
            ),
            *_AGREED,
        ),
        ("methodology_version",),
    ),
    Table(
        "quality_summary",
        "one row per agent, version and quantity (success, metrics, failure rates of failure metrics, cost)",
        ("methodology_version", "agent_id", "quantity"),
        (
            VERSION,
            AGENT,
            Column(
                "quantity",
                S,
                "'success rate', a metric, 'failure rate: ' and a metric, or cost_usd",
                nullable=False,
            ),
            Column("scale_low", F, "Lower end of the quantity's scale", nullable=False),
            Column(
                "scale_high",
                F,
                "Upper end of the quantity's scale; null for cost_usd, which is in US dollars per conversation",
            ),
            Column(
                "mean",
                F,
                "Mean over conversations of the mean of each conversation's answers, on the scale; null if no answer is known",
            ),
            Column(
                "low", F, "Lower 95 % bound of the mean over new sessions; null with fewer than two clusters"
            ),
            Column(
                "high", F, "Upper 95 % bound of the mean over new sessions; null with fewer than two clusters"
            ),
            Column(
                "mean_of_judge",
                F,
                "Mean before the labels of rating sheets correct it; null if no such label corrects the mean",
            ),
            Column(
                "n_labels_drawn",
                I,
                "Labels of people that correct the mean, because rating sheets drew their parts; null if none does",
            ),
            Column(
                "n_labels_own",
                I,
                "Answers of people that count for their own part only, because no sheet drew it",
            ),
            Column("n_conversations", I, "Conversations in the mean", nullable=False),
            Column(
                "n_clusters", I, "Clusters of conversations that may depend on each other", nullable=False
            ),
            Column(
                "clustered_by",
                S,
                "Unit of the clusters: session, or 'task or conversation' if there is a single session; null without a mean",
            ),
            Column("n_scored", I, "Scored answers about turns or conversations", nullable=False),
            Column(
                "n_unscored",
                I,
                "Answers that were lost or disputed between people, and unknown outcomes",
                nullable=False,
            ),
            Column(
                "n_unasked",
                I,
                "Missing answers that only a judge model could give, because none was asked",
                nullable=False,
            ),
            Column("unscored_share", F, "n_unscored / (n_scored + n_unscored), 0–1; null if both are 0"),
            Column(
                "judges",
                NAMES,
                "Judges that answered; for the success rate, the sources as in correctness_source",
                nullable=False,
            ),
        ),
        BY_PAIR,
    ),
)
