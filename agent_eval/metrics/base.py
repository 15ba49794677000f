"""What a metric is: a question with a grain, a kind of answer and a rubric."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent_eval.transcripts.hashing import digest

Grain = Literal["turn", "conversation", "session"]
Kind = Literal["rating", "label", "value"]

NO_FAILURE = "no failure"


@dataclass(frozen=True)
class Metric:
    """One thing that is measured.

    `anchors` holds the words for each rating (5..1), each label, or each end of a value.
    A rating is an integer 1–5; a label is one of `anchors`' keys; a value lies in [0, 1].
    """

    name: str
    grain: Grain
    kind: Kind
    question: str
    anchors: Mapping[str, str] = field(hash=False)
    notes: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """Allowed labels, 'no failure' first; empty for other kinds."""
        return tuple(self.anchors) if self.kind == "label" else ()

    @property
    def rubric_hash(self) -> str:
        """Changes when the words or the answer's form change, and only then."""
        return digest(
            "rubric", self.name, self.grain, self.kind, self.question, dict(self.anchors), self.notes
        )
