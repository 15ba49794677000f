"""Use a Python function in place of a judge model in notebooks, examples and tests."""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from agent_eval.judge.llm.budget import Usage
from agent_eval.judge.llm.client import CallError, Reply
from agent_eval.judge.prompts import Messages, Prompt
from agent_eval.metrics.base import QUESTION_CODE

Script = Callable[[str, str], JsonValue | Awaitable[JsonValue]]
"""Function of a metric's name and the prompt that returns a score, a label, a list of items or None; can be async."""


@dataclass(frozen=True)
class ScriptedClient:
    """Client that answers with the results of a function, in the form that the prompt requires."""

    script: Script
    model: str = "scripted"

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        """Call the function for each metric of the prompt, and return the results as a reply.

        Raises:
            CallError: If the function raises an exception; the detail contains its message.
        """
        prompt = "\n".join(message["content"] for message in messages)
        forms = form.schema["properties"]
        assert isinstance(forms, dict)
        try:
            parts = {
                name: _part(of_metric, await self._answer(name, prompt))
                for name, of_metric in forms.items()
                if name != QUESTION_CODE
            }
            parts[QUESTION_CODE] = form.question_code
            return Reply(json.dumps(parts), Usage(0, 0, 0, 0.0))
        except Exception as error:
            raise CallError("unfit", f"the script raised {type(error).__name__}: {error}") from error

    async def _answer(self, metric: str, prompt: str) -> JsonValue:
        answer = self.script(metric, prompt)
        return await answer if inspect.isawaitable(answer) else answer

    async def close(self) -> None:
        """Do nothing, because there is no connection to close."""


def _part(form: JsonValue, answer: JsonValue) -> JsonValue:
    """Return the part of a reply about one metric: the answer, and the other fields that the form requires."""
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
        return answer if isinstance(answer, list) and name not in ("further_labels", "causes") else []
    return True
