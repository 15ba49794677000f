"""Facts about judgments are the same, whether all judgments are read at once or in parts."""

from itertools import chain

import polars as pl
import pytest

from agent_eval.gates import GateSpec, gates
from agent_eval.gates.judgment_facts import JudgmentFacts
from agent_eval.tables import table
from tests.gates.test_gates import composite
from tests.gates.test_silence import replied, silent, without
from tests.scores.builders import judgment, transcripts

FAILURES = ("agent_behavior_failure",)
NAMES = [f"c{i}" for i in range(6)]
SPEC = GateSpec.model_validate(
    {"thresholds": {"helpfulness": 0.7}, "overall": {"helpfulness": 3.5}, "fail_on_error_severity": "none"}
)


def of_conversation(i: int) -> list[dict[str, object]]:
    """The turns of one conversation: judged by different models, silent, ended, unscored."""
    rows = [
        *replied(0),
        *(silent(1) if i % 2 else replied(1)),
        *(without(2, "ended") if i == 3 else replied(2)),
    ]
    rating = None if i == 4 else float(1 + i % 5)
    answered = {"judge": f"model-{i % 3}", "response_model": f"model-{i}"}
    rows += [judgment("c", "helpfulness", rating, turn_index=t, **answered) for t in range(3)]
    rows += [judgment("c", *FAILURES, 1.0, turn_index=0, judge="model-0") | {"label": "no failure"}]
    return [row | {"conversation_id": NAMES[i]} for row in rows]


TURNS = table("turn_judgments").frame(chain.from_iterable(map(of_conversation, range(6))))
WHOLE = table("conversation_judgments").frame(
    judgment(name, "goal_completion", float(i % 2), judge="model-9") for i, name in enumerate(NAMES)
)
TRANSCRIPTS = table("transcripts").frame(transcripts()[0] | {"conversation_id": name} for name in NAMES)


def facts(names: list[str]) -> JudgmentFacts:
    of_part = pl.col("conversation_id").is_in(names)
    part = {"turn_judgments": TURNS.filter(of_part), "conversation_judgments": WHOLE.filter(of_part)}
    return JudgmentFacts.of(
        part, TRANSCRIPTS, failure_metrics=FAILURES, mean_of=SPEC.threshold_names | {"goal_completion"}
    )


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_facts_of_parts_add_up(size: int) -> None:
    total = JudgmentFacts.total(facts(NAMES[i : i + size]) for i in range(0, 6, size))
    whole = facts(NAMES)
    assert total == whole
    (silence,) = whole.silent.values()
    assert silence.silent == ("c1#1", "c3#1", "c5#1")
    (models,) = whole.models.values()
    (answered,) = whole.answered.values()
    assert answered == {(f"model-{i % 3}", f"model-{i}") for i in range(6)}
    assert models == {"model-0", "model-1", "model-2", "model-9"}


def test_gates_from_facts_are_those_from_frames() -> None:
    frames = {"composite_scores": table("composite_scores").frame([composite()]), "transcripts": TRANSCRIPTS}
    judged = {"turn_judgments": TURNS, "conversation_judgments": WHOLE}
    from_frames = gates(frames | judged, SPEC, failure_metrics=FAILURES)
    total = JudgmentFacts.total(facts([name]) for name in NAMES)
    assert gates(frames, SPEC, facts=total, failure_metrics=FAILURES).equals(from_frames)
    (evidence,) = from_frames.filter(gate="coverage")["evidence"]
    assert "; model-0 answered by 2 models: model-0, model-3; model-1 answered by 2 models: " in evidence
    assert {"threshold", "overall", "coverage", "silent_turns"} <= {*from_frames["gate"]}


def test_no_part_has_no_facts() -> None:
    assert JudgmentFacts.total([]) == JudgmentFacts()
