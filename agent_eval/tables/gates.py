"""Declare the tables of gate results, and of the inputs that each partition was last computed from."""

from typing import Any

from agent_eval.tables.columns import AGENT, BY_PAIR, VERSION, F, S
from agent_eval.tables.contract import Column, Table
from agent_eval.tables.vocabularies import GATE, RESULT

DECLARED: tuple[Table[Any], ...] = (
    Table(
        "gate_results",
        "one row per agent, version, gate and subject, with the result",
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
                "Subject of the gate, e.g. 'helpfulness in D2'; '' for a gate with a single subject",
                nullable=False,
            ),
            Column("result", RESULT, "passed, failed or unknown", nullable=False),
            Column("evidence", S, "Explanation of the result", nullable=False),
            Column("value", F, "Measured value, on the scale of the threshold; null without a threshold"),
            Column("threshold", F, "Limit that the value is compared with; null if the gate has none"),
            Column("gate_spec", S, "Data version of the gate configuration", nullable=False),
        ),
        BY_PAIR,
    ),
    Table(
        "run_state",
        "one row per table and partition: what its rows were computed from, and what they are",
        ("asset", "agent_id", "methodology_version"),
        (
            Column("asset", S, "Name of the table"),
            Column(
                "agent_id", S, "Agent of the partition; null for tables that are partitioned only by version"
            ),
            Column(
                "methodology_version",
                S,
                "Version of the partition; null for tables that are partitioned only by agent",
            ),
            Column(
                "fingerprint",
                S,
                "Hash of the package version and the inputs: data versions of sources, rows_fingerprint of tables",
                nullable=False,
            ),
            Column(
                "rows_fingerprint",
                S,
                "Hash of the rows in any order, without times, costs and tokens of answers; null if an earlier release "
                "stored the row",
            ),
        ),
        BY_PAIR,
    ),
)
