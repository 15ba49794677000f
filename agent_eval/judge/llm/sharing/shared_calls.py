"""Make the calls of a pass, or use the answers of other workers that ask the same questions."""

from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field, replace

from agent_eval.judge.keys import cache_key
from agent_eval.judge.llm.cache import answers_of
from agent_eval.judge.llm.calls import JudgeCall
from agent_eval.judge.llm.concurrency import Place
from agent_eval.judge.llm.sharing.claims import Claims, TakenError
from agent_eval.judge.prompts import ViewLimits
from agent_eval.judge.protocol import Verdict, is_lost


@dataclass
class SharedCalls:
    """Make the calls of a model during a pass, or wait for the answers of the workers that claimed their questions."""

    claims: Claims
    model: str
    parameters: Mapping[str, object]
    limits: ViewLimits
    _unshared: set[str] = field(default_factory=set[str])
    """Keys whose stored answer is based on evidence that this worker does not show. They are asked without a claim."""

    async def claim(self, call: JudgeCall) -> None:
        """Claim the questions of a call.

        Raises:
            TakenError: If another worker has claimed or answered one of them.
        """
        if keys := set(self._keys(call).values()) - self._unshared:
            await self.claims.claim(keys)

    async def answered(
        self,
        ask: Callable[[JudgeCall, Place], Awaitable[Mapping[str, Verdict]]],
        call: JudgeCall,
        place: Place,
    ) -> Mapping[str, Verdict]:
        """Return the verdict of every metric of a call: from other workers, or from `ask` if they have none."""
        verdicts: dict[str, Verdict] = {}
        while call.questions:
            try:
                own_verdicts = await ask(call, place)
            except TakenError:
                verdicts |= await self._of_others(call)
                call, place = _without(call, verdicts), Place(call.number)
                continue
            if lost := [key for name, key in self._keys(call).items() if is_lost(own_verdicts[name])]:
                await self.claims.release(lost)
            return {**verdicts, **own_verdicts}
        return verdicts

    async def _of_others(self, call: JudgeCall) -> dict[str, Verdict]:
        """Wait for the answers of other workers. Return those that this worker can use, by metric name."""
        keys = self._keys(call)
        rows = await self.claims.wait(keys.values())
        stored = answers_of(
            rows, self.model, self.parameters, lambda: self.limits.context_tokens, call.repeat
        )
        usable = {name: stored[key] for name, key in call.keys.items() if key in stored}
        arrived = set(rows["cache_key"])
        self._unshared |= {key for name, key in keys.items() if key in arrived and name not in usable}
        return dict(usable)

    def _keys(self, call: JudgeCall) -> dict[str, str]:
        """Return the keys of judge_cache by metric name."""
        return {
            name: cache_key(key, self.model, self.parameters, call.repeat) for name, key in call.keys.items()
        }


def _without(call: JudgeCall, answered: Container[str]) -> JudgeCall:
    """Return the call without the answered metrics."""
    left = [
        question.about(metrics)
        for question in call.questions
        if (metrics := [metric for metric in question.metrics if metric.name not in answered])
    ]
    return replace(call, questions=tuple(left))
