"""Describe the judge: models, parameters and mode, as they are part of every key and stored with the rows."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Mode = Literal["one_call", "per_metric"]
Combine = Literal["median", "mean"]

ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class JudgeSpec:
    """Specify one model, or several whose answers are combined.

    With `mode` per_metric, each metric is asked in its own call; its answers are kept apart from those of one
    call.
    """

    models: tuple[str, ...]
    temperature: float = 0.0
    mode: Mode = "one_call"
    combine: Combine = "median"  # how an ensemble's ratings are combined; labels are decided by majority
    context_tokens: int | None = None  # context shown to a model, from the settings; not part of a key
    repeats: int = 1  # times that each model is asked the same question; the median counts
    sample: float | None = (
        None  # share of conversations that is asked about, see judge/sampling.py; None: all
    )
    multimodal: bool | None = None  # whether attachments are shown, from the settings; not part of a key

    @property
    def name(self) -> str:
        """Return the content of column `judge`: the model, or 'ensemble'."""
        return self.models[0] if len(self.models) == 1 else ENSEMBLE

    @property
    def parameters(self) -> Mapping[str, object]:
        """Return the parameters, apart from the model, that an answer depends on: part of the cache key."""
        mode = {} if self.mode == "one_call" else {"mode": self.mode}
        return {"temperature": self.temperature, **mode}

    def to_json(self) -> str:
        """Return the spec as one line of JSON; equal specs have equal texts."""
        facts = asdict(self)
        for name, usual in (("context_tokens", None), ("repeats", 1), ("sample", None), ("multimodal", None)):
            if facts[name] == usual:  # format of earlier releases, so that nothing becomes stale
                del facts[name]
        return json.dumps(facts, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "JudgeSpec":
        """Return the spec that `to_json` wrote."""
        facts = json.loads(text)
        return cls(**{**facts, "models": tuple(facts["models"])})
