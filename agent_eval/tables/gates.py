"""Gates: gate results, and what each pair was last computed from."""

from agent_eval.tables.columns import AGENT, BY_PAIR, VERSION, F, S
from agent_eval.tables.contract import Column, Table

DECLARED = (
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
                "coverage, required_tests, disclosures, status, threshold (of a scenario), overall (of the agent), score, errors, silent_turns, assertions, regression or judge_drift",
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
