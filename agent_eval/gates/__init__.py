"""Evaluate whether an agent passes or fails each gate. A gate that cannot be decided is unknown, never passed.

`kinds/` has one module for each gate, which returns findings with their evidence; `evaluate` combines them into the table
gate_results. The limits are settings (`settings.gate_spec`). The modules take and return data frames; they use
neither the store nor Dagster.
"""

from agent_eval.gates.evaluate import COLUMNS, INPUTS, KINDS, exit_code, gates
from agent_eval.gates.finding import GateFinding, Result
from agent_eval.settings import GateSpec

__all__ = ["COLUMNS", "INPUTS", "KINDS", "GateFinding", "GateSpec", "Result", "exit_code", "gates"]
