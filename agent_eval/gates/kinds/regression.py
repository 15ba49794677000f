"""Gate `regression`: the agent is not worse than its baseline; `project.gates` compares them, as it needs two agents."""

from agent_eval.gates.registry import Gate, Kind

GATE = Gate(
    order=80,
    kinds=(
        Kind(
            "regression",
            "Compared with [gates.baseline], each quantity is shown to be worse by less than the margin; without a margin, no quantity is significantly worse.",
            exists="`[gates.baseline]` is set",
            passes="with `[gates.regression] margin`, which requires a baseline: the data show that the agent is worse than the baseline by less than the margin. Without a margin: no quantity of the agent is significantly worse; the evidence states how large an undetected loss could be. It is unknown if `compare` has no test, for example because there are too few task families",
        ),
    ),
    findings=lambda case: [case.regression],
)
