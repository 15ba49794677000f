"""Replace a judge model by a function of the caller: for notebooks, examples and tests."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from agent_eval.judge.llm.budget import Usage
from agent_eval.judge.llm.client import CallError, Reply
from agent_eval.judge.prompts import Messages, Prompt

Script = Callable[[str, str], JsonValue]
"""Name of a metric and the text of the prompt → its score, label or list of items; None: undecided."""


@dataclass(frozen=True)
class ScriptedClient:
    """Answers, as a `Client`, with a function's results in the form that the prompt demands."""

    script: Script
    model: str = "scripted"

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        """Ask the function for each metric of the prompt.

        Raises:
            CallError: If the function raises an exception; its text is the detail.
        """
        prompt = "\n".join(message["content"] for message in messages)
        forms = form.schema["properties"]
        assert isinstance(forms, dict)
        try:
            parts = {name: _part(of_metric, self.script(name, prompt)) for name, of_metric in forms.items()}
            return Reply(json.dumps(parts), Usage(0, 0, 0, 0.0))
        except Exception as error:
            raise CallError("unfit", f"the script raised {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""


def _part(form: JsonValue, answer: JsonValue) -> JsonValue:
    """Return one metric's part of a reply: the answer, and the other fields that the form demands."""
    fields = form.get("properties") if isinstance(form, Mapping) else None
    assert isinstance(fields, dict)
    return {name: _field(name, field, answer) for name, field in fields.items()}


def _field(name: str, form: JsonValue, answer: JsonValue) -> JsonValue:
    if name in ("score", "label"):
        return answer
    if name == "evidence":
        return None
    if name == "reason":
        return "scripted"
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "array":
        return answer if isinstance(answer, list) and name != "further_labels" else []
    return True
