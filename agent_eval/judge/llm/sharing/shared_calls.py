"""Ask the calls of a pass that other workers may ask too, or take their answers."""

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
    """Ask the calls of one model of a pass, or wait for the answers of the worker that asks them."""

    claims: Claims
    model: str
    parameters: Mapping[str, object]
    limits: ViewLimits
    _unshared: set[str] = field(default_factory=set[str])
    """Keys with an answer that was given on other evidence than this worker may show: asked without a claim."""

    async def claim(self, call: JudgeCall) -> None:
        """Claim the questions of a call.

        Raises:
            TakenError: If another worker has one of them.
        """
        if keys := set(self._keys(call).values()) - self._unshared:
            await self.claims.claim(keys)

    async def answered(
        self,
        ask: Callable[[JudgeCall, Place], Awaitable[Mapping[str, Verdict]]],
        call: JudgeCall,
        place: Place,
    ) -> Mapping[str, Verdict]:
        """Return the verdict of every metric of a call: the answers of others, and `ask` for the rest."""
        verdicts: dict[str, Verdict] = {}
        while call.questions:
            try:
                given = await ask(call, place)
            except TakenError:
                verdicts |= await self._of_others(call)
                call, place = _without(call, verdicts), Place(call.number)
                continue
            if lost := [key for name, key in self._keys(call).items() if is_lost(given[name])]:
                await self.claims.release(lost)
            return {**verdicts, **given}
        return verdicts

    async def _of_others(self, call: JudgeCall) -> dict[str, Verdict]:
        """Wait for the answers of other workers; return those that count here, by metric."""
        keys = self._keys(call)
        rows = await self.claims.wait(keys.values())
        found = answers_of(rows, self.model, self.parameters, lambda: self.limits.context_tokens, call.repeat)
        usable = {name: found[key] for name, key in call.keys.items() if key in found}
        arrived = set(rows["cache_key"])
        self._unshared |= {key for name, key in keys.items() if key in arrived and name not in usable}
        return dict(usable)

    def _keys(self, call: JudgeCall) -> dict[str, str]:
        """Return metric → key of judge_cache."""
        return {
            name: cache_key(key, self.model, self.parameters, call.repeat) for name, key in call.keys.items()
        }


def _without(call: JudgeCall, answered: Container[str]) -> JudgeCall:
    """Return the call without the metrics that are answered."""
    left = [
        question.about(metrics)
        for question in call.questions
        if (metrics := [metric for metric in question.metrics if metric.name not in answered])
    ]
    return replace(call, questions=tuple(left))
