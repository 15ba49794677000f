"""Describe the judge: its models, parameters and mode, which are part of the keys and stored with the rows."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Mode = Literal["one_call", "per_metric"]
Combine = Literal["median", "mean"]

ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class JudgeSpec:
    """Specify the judge: one model, or several whose answers are combined.

    With the mode per_metric, each metric is asked in its own call. These answers are stored separately from those
    of the mode one_call.
    """

    models: tuple[str, ...]
    temperature: float = 0.0
    mode: Mode = "one_call"
    combine: Combine = "median"  # how the ratings of an ensemble are combined; labels are decided by majority
    context_tokens: int | None = None  # context size from the settings; not part of a key
    repeats: int = 1  # number of times that each model is asked the same question; the median counts
    sample: float | None = None  # share of conversations to judge (judge/sampling.py); None: all
    outcome_sample: float | None = (
        None  # share of declared outcomes to check judges with (judge/sampling.py); None: none
    )
    multimodal: bool | None = None  # whether attachments are shown, from the settings; not part of a key
    redaction: str | None = None  # hash of what is redacted (Redactor.fingerprint); None: nothing

    @property
    def name(self) -> str:
        """Return the value of the column `judge`: the model, or 'ensemble'."""
        return self.models[0] if len(self.models) == 1 else ENSEMBLE

    @property
    def parameters(self) -> Mapping[str, object]:
        """Return the parameters, apart from the model, that are part of the key of an answer."""
        mode = {} if self.mode == "one_call" else {"mode": self.mode}
        redaction = {} if self.redaction is None else {"redaction": self.redaction}
        return {"temperature": self.temperature, **mode, **redaction}

    def to_json(self) -> str:
        """Return the spec as one line of JSON. Equal specs give equal lines."""
        facts = asdict(self)
        usual_values = {
            "context_tokens": None,
            "repeats": 1,
            "sample": None,
            "outcome_sample": None,
            "multimodal": None,
            "redaction": None,
        }
        for name, usual in usual_values.items():
            if facts[name] == usual:  # the format of earlier releases, so that stored rows stay up to date
                del facts[name]
        return json.dumps(facts, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "JudgeSpec":
        """Return the spec from the output of `to_json`."""
        facts = json.loads(text)
        return cls(**{**facts, "models": tuple(facts["models"])})
