"""Gates: whether an agent passes, fails or cannot be decided. Unknown is never passed.

One module per kind of gate reports findings with their evidence; `evaluate` combines them into table gate_results.
The limits themselves are settings (`settings.gate_spec`). Frames in, frames out: no store, no Dagster.
"""

from agent_eval.gates.evaluate import INPUTS, KINDS, exit_code, gates
from agent_eval.gates.finding import GateFinding, Result
from agent_eval.settings import GateSpec

__all__ = ["INPUTS", "KINDS", "GateFinding", "GateSpec", "Result", "exit_code", "gates"]
