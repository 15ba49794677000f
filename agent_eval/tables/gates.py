"""Declare the tables of gate results, and of the inputs that each partition was last computed from."""

from typing import Any

from agent_eval.tables.columns import AGENT, BY_PAIR, VERSION, F, S
from agent_eval.tables.contract import Column, Table
from agent_eval.tables.vocabularies import GATE, RESULT

DECLARED: tuple[Table[Any], ...] = (
    Table(
        "gate_results",
        "one row per agent, version, gate and subject: does it pass?",
        ("methodology_version", "agent_id", "gate", "subject"),
        (
            VERSION,
            AGENT,
            Column(
                "gate",
                GATE,
                "coverage, required_tests, disclosures, status, threshold (of a scenario), overall (of the agent), score, errors, silent_turns, assertions, regression, judge_drift or calibration",
                nullable=False,
            ),
            Column(
                "subject",
                S,
                "What it speaks of, e.g. 'helpfulness in D2'; '' when there is one",
                nullable=False,
            ),
            Column("result", RESULT, "passed, failed or unknown", nullable=False),
            Column("evidence", S, "Why", nullable=False),
            Column("value", F, "What was measured, on the scale of the threshold; null without a threshold"),
            Column("threshold", F, "What it must reach; null where the gate has none"),
            Column("gate_spec", S, "Data version of the rules that it was held against", nullable=False),
        ),
        BY_PAIR,
    ),
    Table(
        "run_state",
        "one row per table and partition of it: what its rows were made from",
        ("asset", "agent_id", "methodology_version"),
        (
            Column("asset", S, "The table"),
            Column("agent_id", S, "Null for the tables of a version"),
            Column("methodology_version", S, "Null for the tables of an agent"),
            Column(
                "fingerprint",
                S,
                "Hash of the package version and of what was read: data versions of sources, fingerprints of tables",
                nullable=False,
            ),
        ),
        BY_PAIR,
    ),
)
