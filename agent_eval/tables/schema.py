"""Every stored table. `run_id` and `created_at` are added to each by the store."""

import polars as pl

from agent_eval.tables.contract import Column, Table

S, I, F, B = pl.String, pl.Int64, pl.Float64, pl.Boolean  # noqa: E741
NAMES, NUMBERS, TIME = pl.List(pl.String), pl.List(pl.Float64), pl.Datetime("us")

AGENT = Column("agent_id", S, "The agent, as in agents.yaml", nullable=False)
VERSION = Column("methodology_version", S, "The methodology version, e.g. 1.3.0", nullable=False)
CONVERSATION = Column("conversation_id", S, "The conversation, unique within its agent", nullable=False)
SESSION = Column("session_id", S, "The session folder", nullable=False)
BY_PAIR = ("agent_id", "methodology_version")

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
)

JUDGMENT = (
    Column("metric", S, "What was asked, e.g. helpfulness", nullable=False),
    Column("judge", S, "Who answered: human, rule, recorded, ensemble or a model's name", nullable=False),
    Column("rating_1to5", I, "The rating, integer 1–5; null unless this metric is a rating and was scored"),
    Column("value", F, "The value of a 0/1 or real-valued metric; null otherwise"),
    Column("label", S, "The main failure label, or 'no failure'"),
    Column("further_labels", NAMES, "Failure labels that apply as well"),
    Column("status", S, "scored, not_applicable or unscored", nullable=False),
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
    Column("judged_at", S, "When, ISO 8601"),
    *PAID,
)

PASS_K = (
    Column("k", I, "Attempts", nullable=False),
    Column("estimator", S, "unbiased, plug_in or bayesian", nullable=False),
    Column("n_tasks", I, "Tasks that count: with enough trials of known outcome", nullable=False),
    Column(
        "n_tasks_excluded", I, "Tasks with too few: under k for unbiased, none for the others", nullable=False
    ),
    Column("excluded_tasks", NAMES, "The excluded tasks by name"),
    Column("n_trials", I, "Trials of known outcome in the tasks that count", nullable=False),
    Column("n_trials_unknown", I, "Trials left out of the denominator: outcome unknown", nullable=False),
    Column("n_trials_judge_failed", I, "Of the unknown ones: a judgment that could have told was lost"),
    Column("n_successes", I, "Correct trials in the tasks that count", nullable=False),
    Column("correctness_source", S, "outcome, interactions, goal_completion, or several joined by +"),
    Column("pass_at_k", F, "Probability that at least one of k trials is correct, 0–1"),
    Column("pass_at_k_low", F, "Lower 95 % bound; null without an interval"),
    Column("pass_at_k_high", F, "Upper 95 % bound; null without an interval"),
    Column("pass_hat_k", F, "Probability that all k trials are correct, 0–1"),
    Column("pass_hat_k_low", F, "Lower 95 % bound; null without an interval"),
    Column("pass_hat_k_high", F, "Upper 95 % bound; null without an interval"),
    Column("interval", S, "What the bounds are and cover, or why there are none"),
    Column("assessment", S, "reliable, inconsistent, needs improvement or moderate; single run for k = 1"),
)

STATUS = Column("status", S, "published, provisional, incomplete, invalid or not_applicable", nullable=False)
JUDGES = Column("judges", NAMES, "Who gave the effective ratings, sorted", nullable=False)
MEASURED = (
    Column(
        "goal_completion",
        F,
        "Share of judged conversations whose goal was reached, 0–1; null when none judged",
    ),
    Column("n_goal_completion", I, "Conversations judged for goal completion", nullable=False),
    Column("cost_usd", F, "What the admitted conversations cost, US dollars; null when any is unknown"),
    Column("n_conversations", I, "Admitted conversations: what cost_usd is the sum over"),
    Column(
        "judge",
        S,
        "Who gave the effective ratings, e.g. 'human + recorded'; 'none' without a rating",
        nullable=False,
    ),
)
MISSING = Column("missing", NAMES, "What is missing or wrong, each named", nullable=False)
DISCLOSED = (
    Column("repeatability_tested", B, "Disclosure after its check; null when unknown or not evidenced"),
    Column("u3_scope", S, "single_message or multi_turn, after its check; null when not disclosed"),
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

_DECLARED = (
    Table(
        "agents",
        "one row per agent",
        ("agent_id",),
        (
            AGENT,
            Column("name", S, "Display name"),
            Column("category", S, "Methodology category, e.g. customer_service"),
            Column("provider", S, "Who makes it"),
            Column("template", S, "Domain template of the category in the current version; null when none"),
            Column("baseline", S, "The agent that this one is compared with in error trends"),
            Column("taken_in", S, "Hash of the session files these rows were read from, and of the release"),
        ),
        ("agent_id",),
    ),
    Table(
        "sessions",
        "one row per session folder",
        ("agent_id", "session_id"),
        (
            AGENT,
            SESSION,
            Column("benchmark_id", S, "Sessions that share it form one run", nullable=False),
            Column("session_date", S, "ISO date of the session"),
            Column("evaluator", S, "Who ran it"),
            Column("methodology_versions", NAMES, "Versions it was run for, or ['any']", nullable=False),
            Column("u3_scope", S, "Declared scope of U3"),
            Column("repeatability_tested", B, "Declared; null when not disclosed"),
            Column("links", S, "JSON object: slot → required test that it also serves"),
            Column("task_set", S, "Name of the set of tasks"),
            Column(
                "invalid_reason", S, "Set when the harness failed: the session never counts against the agent"
            ),
        ),
        ("agent_id",),
    ),
    Table(
        "conversations",
        "one row per conversation; the texts are in turns",
        ("agent_id", "conversation_id"),
        (
            AGENT,
            CONVERSATION,
            SESSION,
            Column("task_id", S, "The task that was attempted; trials of one task share it"),
            Column("task_set", S, "The set the task belongs to"),
            Column("trial", I, "Trial number as recorded"),
            Column("scenario", S, "D1..D5, standardised_task, hallucination, error_injection or null"),
            Column("n_turns", I, "Turns", nullable=False),
            Column("n_user_messages", I, "Messages of role user", nullable=False),
            Column("n_agent_messages", I, "Messages of role assistant", nullable=False),
            Column("n_tool_calls", I, "Tool calls, by agent or user", nullable=False),
            Column("goal", S, "What the user wanted"),
            Column("profile", S, "Who the user is"),
            Column("knowledge", S, "JSON array of texts a judge may know"),
            Column("tools", S, "JSON array of tool schemas; null when unknown"),
            Column("expected", S, "JSON array of ground truth per turn"),
            Column("interventions", S, "JSON array; null when not recorded, [] when there were none"),
            Column("injected_error", S, "JSON: the deliberately broken input, null when none"),
            Column("outcome_correct", B, "Declared outcome; null when unknown"),
            Column("outcome_reward", F, "Declared reward; null when unknown"),
            Column("outcome_source", S, "Where the outcome comes from"),
            Column("cost_usd", F, "What the agent cost, US dollars; null when unknown"),
            Column("content_hash", S, "Hash of all that a judge may see", nullable=False),
            Column("source", S, "Format, file and record it came from"),
            Column("metadata", S, "JSON object, kept as found"),
        ),
        ("agent_id",),
    ),
    Table(
        "turns",
        "one row per turn: a user message and the reply up to the next",
        ("agent_id", "conversation_id", "turn_index"),
        (
            AGENT,
            CONVERSATION,
            Column("turn_index", I, "0-based", nullable=False),
            Column("user_message", S, "Null when the conversation has no user message"),
            Column(
                "agent_message", S, "The agent's texts after it, joined by a blank line; null without a reply"
            ),
            Column("messages", S, "JSON array of the turn's messages in order", nullable=False),
            Column("n_tool_calls", I, "Tool calls in this turn", nullable=False),
            Column("latency_ms", F, "Milliseconds from user message to the last reply; null when unknown"),
            Column("content_hash", S, "Hash of all content up to and with this turn", nullable=False),
        ),
        ("agent_id",),
    ),
    Table(
        "tool_calls",
        "one row per tool call",
        ("agent_id", "conversation_id", "turn_index", "call_index"),
        (
            AGENT,
            CONVERSATION,
            Column("turn_index", I, "0-based", nullable=False),
            Column("call_index", I, "0-based within the turn", nullable=False),
            Column("name", S, "Tool name", nullable=False),
            Column("arguments", S, "JSON; a string when the call's arguments were not JSON", nullable=False),
            Column("result", S, "The tool's answer as text; null when none came"),
            Column("is_error", B, "The result is an error; null when unknown"),
            Column("requestor", S, "assistant or user", nullable=False),
        ),
        ("agent_id",),
    ),
    Table(
        "import_errors",
        "one row per refused record",
        ("agent_id", "file", "line", "reason"),
        (
            AGENT,
            Column("session_id", S, "The session it would have joined; null when unknown"),
            Column("file", S, "File name, without folders outside the project", nullable=False),
            Column(
                "line", I, "1-based line, or record number in an array; 0 for the whole file", nullable=False
            ),
            Column("reason", S, "What is wrong, what is allowed, the fix", nullable=False),
        ),
        ("agent_id",),
    ),
    Table(
        "transcripts",
        "one row per conversation and version: does it count, and as what",
        ("methodology_version", "agent_id", "conversation_id"),
        (
            VERSION,
            AGENT,
            CONVERSATION,
            SESSION,
            Column("benchmark_id", S, "The run it belongs to", nullable=False),
            Column("template", S, "The agent's domain template under this version; null when none"),
            Column("slot", S, "D1..D5 or a required test; null for undeclared sessions"),
            Column("tests", NAMES, "Required tests that this conversation serves", nullable=False),
            Column("task_id", S, "The task"),
            Column("task_set", S, "The set of tasks"),
            Column("trial", I, "Trial number as recorded"),
            Column("n_turns", I, "Turns", nullable=False),
            Column("n_user_messages", I, "User messages", nullable=False),
            Column("is_admitted", B, "Counts under this version", nullable=False),
            Column("reason", S, "Why it does not count; null when it does"),
            Column("superseded_by", S, "The later run that replaced this one"),
        ),
        BY_PAIR,
    ),
    Table(
        "turn_judgments",
        "one row per turn, metric and judge",
        ("methodology_version", "agent_id", "conversation_id", "turn_index", "metric", "judge"),
        (VERSION, AGENT, CONVERSATION, Column("turn_index", I, "0-based", nullable=False), *JUDGMENT),
        BY_PAIR,
    ),
    Table(
        "conversation_judgments",
        "one row per conversation, metric and judge",
        ("methodology_version", "agent_id", "conversation_id", "metric", "judge"),
        (VERSION, AGENT, CONVERSATION, *JUDGMENT),
        BY_PAIR,
    ),
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
            Column("overall", F, "Weighted mean of the four, 0–1"),
            Column("is_correct", B, "overall ≥ threshold"),
            Column("status", S, "scored, not_applicable or unscored", nullable=False),
            Column("reason", S, "Why there is no score, or what was wrong"),
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
                S,
                "tools (expected calls), trajectory (an object with mode, tools, forbidden) or text",
                nullable=False,
            ),
            Column("assertion", S, "What is demanded, in words"),
            Column("result", S, "passed, failed or unknown", nullable=False),
            Column("reason", S, "What is missing or wrong, or why it is unknown; null when passed"),
            Column("diff", S, "One line per call, made or missed: +, -, ~ (out of order) or ! (forbidden)"),
        ),
        BY_PAIR,
    ),
    Table(
        "failures",
        "one row per failure label of a judged turn",
        ("failure_id",),
        (
            Column(
                "failure_id",
                S,
                "Hash of agent, version, conversation, turn, metric and label",
                nullable=False,
            ),
            AGENT,
            VERSION,
            CONVERSATION,
            Column("turn_index", I, "0-based", nullable=False),
            Column("label", S, "The failure label", nullable=False),
            Column("quote", S, "The evidence, or the rationale without one"),
            Column("reason", S, "The judge's rationale; null without one"),
            Column("tool", S, "The tool concerned, for tool failures"),
            Column("fault_author", S, "agent or environment; null: it cannot be told"),
            Column("cluster_id", S, "The error cluster it belongs to", nullable=False),
            Column("text_hash", S, "What was compared, see error_members; null without words"),
            Column(
                "distance", F, "Mean cosine distance to the cluster when it was assigned, 0–2; 0 for blocks"
            ),
            Column(
                "method",
                S,
                "How its words were first assigned: minted, prototype, human, or block (no words)",
                nullable=False,
            ),
        ),
        BY_PAIR,
    ),
    Table(
        "error_clusters",
        "one row per cluster with failures of this agent under this version",
        ("methodology_version", "agent_id", "cluster_id"),
        (
            VERSION,
            AGENT,
            Column("cluster_id", S, "Lasting id, see error_registry", nullable=False),
            Column("label", S, "The failure label", nullable=False),
            Column("tool", S, "The tool, for tool failures"),
            Column("title", S, "Short name"),
            Column("root_cause", S, "Explanation"),
            Column("severity", S, "low < medium < high < critical", nullable=False),
            Column("n_failures", I, "Failures", nullable=False),
            Column("n_turns", I, "Turns with such a failure", nullable=False),
            Column("n_conversations", I, "Conversations with such a failure", nullable=False),
            Column("n_turns_eligible", I, "Turns judged for it by others than rules; null when none"),
            Column("rate_per_100_turns", F, "Eligible turns with it per 100 eligible turns; null when none"),
            Column("examples", NAMES, "Up to three turn references, conversation#turn", nullable=False),
            Column("first_seen", S, "ISO 8601, in any agent"),
            Column("last_seen", S, "ISO 8601, in any agent"),
            Column(
                "trend",
                S,
                "Against the agent's run before, as in error_trends; null: no earlier run, or see error_trends for a baseline agent",
            ),
        ),
        BY_PAIR,
    ),
    Table(
        "error_registry",
        "one row per cluster id ever minted",
        ("cluster_id",),
        (
            Column("cluster_id", S, "Never reused", nullable=False),
            Column("label", S, "The failure label", nullable=False),
            Column("tool", S, "The tool, for tool failures"),
            Column(
                "severity", S, "low < medium < high < critical: a person's, else the highest", nullable=False
            ),
            Column("title", S, "Short name: a person's, else the model's, else the rule's"),
            Column(
                "root_cause", S, "Explanation: a person's, else the model's, else the reason of its medoid"
            ),
            Column("first_seen", S, "ISO 8601"),
            Column("last_seen", S, "ISO 8601"),
            Column("merged_into", S, "The id that replaced this one"),
            Column("merged_by", S, "human or consolidation; null when not merged"),
            Column("founder", S, "text_hash of the text it was minted for; null for a block without words"),
            Column(
                "rule_title", S, "Label with the quote of the medoid, the most typical failure at minting"
            ),
            Column("rule_root_cause", S, "The reason of that failure"),
            Column("rule_severity", S, "By label"),
            Column("model_title", S, "The model's name; null until named"),
            Column("model_root_cause", S, "The model's explanation"),
            Column("model_severity", S, "The model's rating"),
            Column("named_by", S, "The model that named it; null until named"),
            Column("n_texts_named", I, "Distinct texts when it was last named; twice as many are a change"),
            Column(
                "naming_problem", S, "Why the judge model gave no name when it was last asked; null: it did"
            ),
        ),
    ),
    Table(
        "error_members",
        "one row per distinct text of a block (label and tool): the cluster it was assigned to, for good",
        ("label", "tool", "text_hash"),
        (
            Column("label", S, "The failure label", nullable=False),
            Column("tool", S, "The tool, for tool failures"),
            Column("text_hash", S, "Hash of the text", nullable=False),
            Column("text", S, "The words compared: no ids, numbers or turn references", nullable=False),
            Column("quote", S, "The evidence of the first failure with this text"),
            Column("reason", S, "Its rationale"),
            Column("cluster_id", S, "Its cluster before merges, see error_registry", nullable=False),
            Column("distance", F, "Mean cosine distance to the cluster when it was assigned, 0–2"),
            Column("method", S, "minted, prototype or human", nullable=False),
        ),
    ),
    Table(
        "error_events",
        "one row per merge or split of clusters that was made, or merge that a model proposed",
        ("event_id",),
        (
            Column("event_id", S, "Hash of the other columns but the time", nullable=False),
            Column("kind", S, "merge, split or merge proposed", nullable=False),
            Column("cluster_id", S, "The cluster that was merged away or split", nullable=False),
            Column("other_id", S, "The cluster that it went into, or that came out of it", nullable=False),
            Column("by", S, "human, consolidation or a model's name", nullable=False),
            Column("reason", S, "Why"),
            Column("at", S, "ISO 8601", nullable=False),
        ),
    ),
    Table(
        "failure_vectors",
        "one row per text and embedding model: a cache, may be deleted at any time",
        ("text_hash", "model"),
        (
            Column("text_hash", S, "Hash of the text", nullable=False),
            Column("model", S, "Embedding model and its version here", nullable=False),
            Column("vector", pl.List(pl.Float32), "Its length is at most 1", nullable=False),
        ),
    ),
    Table(
        "error_rates",
        "one row per agent, run (benchmark_id) and cluster seen in it, and per set of metrics one with its eligible turns; runs that were superseded stay",
        ("methodology_version", "agent_id", "benchmark_id", "metrics", "cluster_id"),
        (
            VERSION,
            AGENT,
            Column("benchmark_id", S, "The run", nullable=False),
            Column("run_date", S, "ISO date of its latest session; null when unknown"),
            Column("is_current", B, "Its conversations count now", nullable=False),
            Column("metrics", S, "Metrics whose turns are eligible, joined by +", nullable=False),
            Column("cluster_id", S, "Null: the eligible turns of these metrics"),
            Column("n_conversations", I, "Conversations with eligible turns; null for a cluster"),
            Column(
                "n_turns", I, "Turns: eligible ones, or for a cluster those of them with it", nullable=False
            ),
            Column("sum_squares", I, "Σ over conversations of the square of its n_turns", nullable=False),
            Column("sum_products", I, "Σ over conversations of turns with it × eligible turns; null without"),
        ),
        BY_PAIR,
    ),
    Table(
        "error_trends",
        "one row per agent and cluster: its rate beside its baseline's",
        ("methodology_version", "agent_id", "cluster_id"),
        (
            VERSION,
            AGENT,
            Column("cluster_id", S, "See error_registry", nullable=False),
            Column("label", S, "The failure label", nullable=False),
            Column("title", S, "Short name"),
            Column("severity", S, "low < medium < high < critical", nullable=False),
            Column(
                "baseline_agent_id", S, "The agent compared with; itself for an earlier run", nullable=False
            ),
            Column("benchmark_id", S, "The run compared; null: all that count"),
            Column("baseline_benchmark_id", S, "The earlier run; null: all of the baseline agent that count"),
            Column("n_turns", I, "Eligible turns with the failure", nullable=False),
            Column("n_turns_eligible", I, "Turns judged for it by others than rules", nullable=False),
            Column("rate_per_100_turns", F, "Rate; 0 when judged and never seen, null when not judged"),
            Column("rate_low", F, "Lower 95 % bound"),
            Column("rate_high", F, "Upper 95 % bound"),
            Column("baseline_n_turns", I, "The baseline's eligible turns with the failure", nullable=False),
            Column("baseline_n_turns_eligible", I, "The baseline's eligible turns", nullable=False),
            Column("baseline_rate_per_100_turns", F, "The baseline's rate"),
            Column("baseline_rate_low", F, "Lower 95 % bound"),
            Column("baseline_rate_high", F, "Upper 95 % bound"),
            Column("design_effect", F, "How much turns of one conversation go together; 1: not at all"),
            Column("p_value", F, "Score test of equal rates, two-sided; null when a side was not judged"),
            Column("q_value", F, "Benjamini–Hochberg over the clusters of this comparison"),
            Column("is_significant", B, "q ≤ 0.05; null without q"),
            Column(
                "trend",
                S,
                "new or gone (seen on one side only), regressed or improved (seen on both and significant), unchanged (seen on both, no clear difference) or unknown (a side was not judged)",
                nullable=False,
            ),
        ),
        ("methodology_version",),
    ),
    Table(
        "rubric_ratings",
        "one row per session (U) or conversation (D), target, criterion and rater; a part without a rating has a row that says so",
        (
            "methodology_version",
            "agent_id",
            "session_id",
            "conversation_id",
            "target",
            "criterion",
            "judge",
            "rater",
        ),
        (
            VERSION,
            AGENT,
            Column("session_id", S, "The session; null when no session was declared for this version"),
            Column("conversation_id", S, "Null for a session rating"),
            Column("target", S, "U1..U6 or D1..D5", nullable=False),
            Column(
                "criterion", S, "One of the template's three; null for U and where the template is unknown"
            ),
            Column("rating_1to5", I, "Integer 1–5; null unless scored"),
            Column("status", S, "scored, unscored, missing, invalid or not_applicable", nullable=False),
            Column("reason", S, "Why there is no rating"),
            Column("rationale", S, "The rater's words"),
            Column("evidence", S, "A quote or a turn reference"),
            Column("evidence_verified", B, "The quote was found in the transcript; null without a quote"),
            Column("judge", S, "human, rule, recorded, a model's name, or none", nullable=False),
            Column("rater", S, "Who rated: a person, a model, a rule"),
            Column("rated_at", S, "ISO 8601"),
            Column(
                "is_effective", B, "Counts in the scores: human > rule > model or recorded", nullable=False
            ),
            Column("question_key", S, "Hash of what was asked"),
            Column("prompt_hash", S, "Hash of the exact prompt; null where no model was asked"),
            *PAID,
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
            Column("n_unscored", I, "Ratings lost to a failure of judge or harness", nullable=False),
            MISSING,
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
            Column("n_unscored", I, "Ratings lost to a failure of judge or harness", nullable=False),
            MISSING,
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
            Column("benchmark_id", S, "The run that counts; null for undeclared sessions"),
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
            STATUS,
            MISSING,
            Column("warnings", NAMES, "What does not bar publication but should be known", nullable=False),
        ),
        BY_PAIR,
    ),
    Table(
        "reliability",
        "one row per agent, version, task set, k and estimator",
        ("methodology_version", "agent_id", "task_set", "k", "estimator"),
        (VERSION, AGENT, Column("task_set", S, "The set of tasks", nullable=False), *PASS_K),
        BY_PAIR,
    ),
    Table(
        "leaderboard",
        "one row per agent: the board of one version",
        ("methodology_version", "agent_id"),
        (
            VERSION,
            AGENT,
            Column("name", S, "Display name"),
            Column("template", S, "Domain template: ranks are within it"),
            Column(
                "rank", I, "Competition rank (1, 2, 2, 4) among published rows of the template; else null"
            ),
            Column("rank_low", I, "Best rank that the intervals allow; null without an interval of its own"),
            Column(
                "rank_high", I, "Worst rank that the intervals allow; peers without one may stand anywhere"
            ),
            Column("rank_if_tested", I, "What if: rank in the template had no agent paid the penalty"),
            Column("rank_overall", I, "Rank over all templates: rubrics differ, read with care"),
            *COMPOSED,
            Column("low", F, "Lower 95 % bound of the composite, over sessions; null with fewer than two"),
            Column("high", F, "Upper 95 % bound"),
            Column(
                "lead_points", F, "Points above the next one of the template (0: shared); null for the last"
            ),
            Column("point_0to100", F, "The most that one rating point in one session moves the composite"),
            Column(
                "lead_survives_point", B, "The lead is larger than one rating point of either agent moves"
            ),
            Column(
                "is_pareto",
                B,
                "No agent of the template costs no more per conversation and scores no less, one of them truly; null when its cost is unknown",
            ),
            Column("n_sessions", I, "Sessions averaged", nullable=False),
            *DISCLOSED,
            Column(
                "pass_at_1",
                F,
                "Mean over tasks of the share of correct trials, 0–1; null when unknown or over several task sets",
            ),
            Column("n_tasks", I, "Tasks behind pass_at_1"),
            *MEASURED,
            STATUS,
            MISSING,
        ),
        ("methodology_version",),
    ),
    Table(
        "pairwise_comparisons",
        "one row per two published agents of a template, compared over their sessions",
        ("methodology_version", "agent_id", "other_agent_id"),
        (
            VERSION,
            AGENT,
            Column("other_agent_id", S, "The other agent; agent_id < other_agent_id", nullable=False),
            Column("template", S, "Domain template"),
            Column("difference", F, "Composite of agent_id minus that of the other", nullable=False),
            Column("low", F, "Lower 95 % bound of the difference; null when one has a single session"),
            Column("high", F, "Upper 95 % bound"),
            Column("probability_better", F, "That agent_id is truly the better one, 0–1, flat prior"),
            Column("p_value", F, "Two-sided, Welch's t over sessions"),
            Column("p_holm", F, "The same, corrected for all pairs of the template after Holm"),
            Column("n_sessions", I, "Sessions of agent_id", nullable=False),
            Column("other_n_sessions", I, "Sessions of the other", nullable=False),
            Column("verdict", S, "better, worse, tie, not distinguishable or unknown", nullable=False),
        ),
        ("methodology_version",),
    ),
    Table(
        "reliability_leaderboard",
        "one row per agent, task set, k and estimator, ranked",
        ("methodology_version", "agent_id", "task_set", "k", "estimator"),
        (
            VERSION,
            AGENT,
            Column("task_set", S, "The set of tasks: agents are ranked within it", nullable=False),
            Column("rank", I, "By pass_hat_k, ties shared; null without an estimate"),
            *PASS_K,
        ),
        ("methodology_version",),
    ),
    Table(
        "gate_results",
        "one row per agent, version, gate and subject: does it pass?",
        ("methodology_version", "agent_id", "gate", "subject"),
        (
            VERSION,
            AGENT,
            Column(
                "gate",
                S,
                "coverage, required_tests, disclosures, status, threshold (of a scenario), overall (of the agent), score, errors, assertions, regression or judge_drift",
                nullable=False,
            ),
            Column(
                "subject",
                S,
                "What it speaks of, e.g. 'helpfulness in D2'; '' when there is one",
                nullable=False,
            ),
            Column("result", S, "passed, failed or unknown", nullable=False),
            Column("evidence", S, "Why", nullable=False),
            Column("value", F, "What was measured, on the scale of the threshold; null without a threshold"),
            Column("threshold", F, "What it must reach; null where the gate has none"),
            Column("gate_spec", S, "Data version of the rules that it was held against", nullable=False),
        ),
        BY_PAIR,
    ),
    Table(
        "judge_audits",
        "one row per audit and answer that was asked for again; the stored answers stay as they are",
        ("audit_id", "cache_key"),
        (
            Column("audit_id", S, "When the audit began, ISO 8601 with microseconds", nullable=False),
            Column("cache_key", S, "The stored answer, see judge_cache", nullable=False),
            Column("question_key", S, "What was asked", nullable=False),
            Column("content_hash", S, "Hash of the content judged", nullable=False),
            Column("turn_index", I, "0-based; null above turn level"),
            Column("metric", S, "What was asked, e.g. helpfulness", nullable=False),
            Column("model", S, "The judge model", nullable=False),
            Column("parameters", S, "JSON object of model parameters", nullable=False),
            Column("verdict_before", S, "The stored verdict, JSON", nullable=False),
            Column("judged_before_at", S, "When that was given, ISO 8601", nullable=False),
            Column("verdict", S, "The new verdict, JSON", nullable=False),
            Column("prompt_hash", S, "Hash of the exact prompt of the new one"),
            Column("n_tokens_in", I, "Its share of the call's prompt tokens"),
            Column("n_tokens_out", I, "Its share of the answer tokens"),
            Column("n_tokens_cached", I, "Its share of the cached prompt tokens"),
            Column("cost_usd", F, "Its share of the call, US dollars; null when unknown"),
            Column("judged_at", S, "ISO 8601", nullable=False),
        ),
    ),
    Table(
        "human_ratings",
        "one row per line of data/ratings/*.csv",
        ("file", "line"),
        (
            AGENT,
            Column("session_id", S, "The session"),
            Column("conversation_id", S, "Null for a session rating"),
            Column("turn_index", I, "0-based; null above turn level"),
            Column("methodology_version", S, "A version, or 'any'", nullable=False),
            Column("target", S, "U1..U6, D1..D5 or a turn metric", nullable=False),
            Column("criterion", S, "For D1..D5"),
            Column("rating_1to5", I, "Integer 1–5", nullable=False),
            Column("rationale", S, "The rater's words"),
            Column("evidence", S, "Quote or turn reference"),
            Column("rater", S, "Who rated", nullable=False),
            Column("rated_at", S, "ISO 8601"),
            Column("file", S, "File it came from", nullable=False),
            Column("line", I, "1-based line", nullable=False),
        ),
        ("agent_id",),
    ),
    Table(
        "judge_cache",
        "one row per answered question and judge",
        ("cache_key",),
        (
            Column("cache_key", S, "Hash of question_key, model, parameters and repeat", nullable=False),
            Column("question_key", S, "Hash of content, turn, metric, rubric and profile", nullable=False),
            Column("content_hash", S, "Hash of the content judged", nullable=False),
            Column("turn_index", I, "0-based; null above turn level"),
            Column("metric", S, "Metric name, 'U3', 'D2.accuracy', or a cluster's id", nullable=False),
            Column("rubric_hash", S, "Hash of rubric and answer schema", nullable=False),
            Column("profile_version", S, "Judge profile", nullable=False),
            Column("model", S, "The model or person that answered", nullable=False),
            Column("parameters", S, "JSON object of model parameters", nullable=False),
            Column("repeat", I, "0-based number of the repeat", nullable=False),
            Column(
                "verdict",
                S,
                "JSON object: status, rating/value/label, further_labels, rationale, evidence",
                nullable=False,
            ),
            Column("prompt_hash", S, "Hash of the exact prompt"),
            Column("n_tokens_in", I, "This answer's share of the call's prompt tokens"),
            Column("n_tokens_out", I, "Its share of the answer tokens"),
            Column("n_tokens_cached", I, "Its share of the cached prompt tokens"),
            Column(
                "cost_usd", F, "Its share of the call, US dollars; the sum is the bill; null when unknown"
            ),
            Column("judged_at", S, "ISO 8601", nullable=False),
            Column(
                "is_recorded",
                B,
                "True: it stands in data/verdicts and goes when it goes; null: a model answered here",
            ),
        ),
    ),
    Table(
        "judge_state",
        "one row per version: the judge models that its judgments were last asked of",
        ("methodology_version",),
        (
            VERSION,
            Column("spec", S, "JSON object: models, temperature, mode, combine", nullable=False),
        ),
        ("methodology_version",),
    ),
    Table(
        "run_state",
        "one row per agent and version: what its tables were computed from",
        ("agent_id", "methodology_version"),
        (
            AGENT,
            VERSION,
            Column("fingerprint", S, "Hash of the sources and the package version", nullable=False),
        ),
        BY_PAIR,
    ),
)

TABLES: dict[str, Table] = {t.name: t for t in _DECLARED}


def table(name: str) -> Table:
    """The table of that name; a KeyError is a defect of ours."""
    return TABLES[name]
