"""Evaluate whether an agent passes or fails each gate; an undecidable gate is unknown, never passed.

One module per kind of gate returns findings with their evidence; `evaluate` combines them into table
gate_results. The limits are settings (`settings.gate_spec`). The modules read and return frames and use
neither store nor Dagster.
"""

from agent_eval.gates.evaluate import COLUMNS, INPUTS, KINDS, exit_code, gates
from agent_eval.gates.finding import GateFinding, Result
from agent_eval.settings import GateSpec

__all__ = ["COLUMNS", "INPUTS", "KINDS", "GateFinding", "GateSpec", "Result", "exit_code", "gates"]
