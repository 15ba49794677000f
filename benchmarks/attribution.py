"""Who failed, and at which step: trivial baselines and the rules against people on the 126 runs of Who&When.

Run: python -m benchmarks.attribution [PATH]. Nothing here uses a judge model; the
scripted judge that quotes the step shows what a quote alone gives.
"""

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_eval.judge.evidence import Transcript
from agent_eval.judge.protocol import Question, Scored
from agent_eval.judge.rules.judge import RulesJudge
from agent_eval.judge.run_sync import run_sync
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE
from agent_eval.metrics.builtin.tool_call_behavior_failure import TOOL_CALL_BEHAVIOR_FAILURE
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.models import Conversation

DATA = Path(__file__).parents[2] / "shared" / "data" / "whowhen" / "algorithm_generated.jsonl.gz"
Step = tuple[int, str] | None
Guess = Callable[[Conversation, Mapping[str, Any]], Step]


def speaker(message: Mapping[str, Any]) -> str:
    """Return the name of a message's speaker in the source."""
    return str(message.get("name") or message["role"])


def at(history: Sequence[Mapping[str, Any]], index: int | None) -> Step:
    """Return the position in the source's history with its speaker; None if there is no such position."""
    return None if index is None or index >= len(history) else (index, speaker(history[index]))


def first_step(_: Conversation, run: Mapping[str, Any]) -> Step:
    """Guess the first step after the opening."""
    return at(run["history"], 1)


def first_error_word(_: Conversation, run: Mapping[str, Any]) -> Step:
    """Guess the first step whose text contains 'error'."""
    found = (i for i, m in enumerate(run["history"]) if re.search("error", m["content"] or "", re.IGNORECASE))
    return at(run["history"], next(found, None))


def busiest_agent(_: Conversation, run: Mapping[str, Any]) -> Step:
    """Guess the agent with the most steps, at its first step."""
    names = [speaker(m) for m in run["history"]]
    name = Counter(names).most_common(1)[0][0]
    return names.index(name), name


def cited(conversation: Conversation, quote: str | None, run: Mapping[str, Any]) -> Step:
    """Return the step of the source that a quote is from."""
    step = Transcript(conversation.turns()).find(quote) if quote else None
    opening = len(conversation.messages) - len(run["history"])  # the question, if the log does not have it
    return (
        None if step is None or step.message_index < opening else (step.message_index - opening, step.speaker)
    )


def rules(conversation: Conversation, run: Mapping[str, Any]) -> Step:
    """Return the step that the rules cite: the first failure by a rule, in the order of turns."""
    turns = conversation.turns()
    metrics = (AGENT_BEHAVIOR_FAILURE, TOOL_CALL_BEHAVIOR_FAILURE)
    for i, turn in enumerate(turns):
        question = Question((conversation,), (turns[: i + 1],), turn.turn_index, "", metrics)
        for verdict in run_sync(RulesJudge().judge(question)).values():
            if isinstance(verdict, Scored) and (step := cited(conversation, verdict.evidence, run)):
                return step
    return None


def scripted_judge(conversation: Conversation, run: Mapping[str, Any]) -> Step:
    """Return the step of a judge that quotes the step that the person named, in full."""
    return cited(conversation, run["history"][int(run["mistake_step"])]["content"], run)


GUESSES: Mapping[str, Guess] = {
    "first step": first_step, "first error word": first_error_word, "busiest agent": busiest_agent,
    "rules": rules, "judge that quotes the person's step": scripted_judge,
}  # fmt: skip


def measure(path: Path = DATA) -> Iterator[str]:
    """Yield a line per guess: the shares of right steps, of named agents, and of speakers of the named step.

    In three runs, the agent that the person named is not the speaker of the step that the person named.
    """
    if not path.is_file():
        yield f"{path.name} of Who&When is not there; give its path"
        return
    conversations = [c for c in FORMATS["whowhen"](Source(path, "s")) if isinstance(c, Conversation)]
    with gzip.open(path, "rt") as lines:
        runs = [json.loads(line) for line in lines]
    for name, guess in GUESSES.items():
        guesses = [guess(c, run) for c, run in zip(conversations, runs, strict=True)]
        given = [(said, run) for said, run in zip(guesses, runs, strict=True) if said]
        n_steps = sum(said[0] == int(run["mistake_step"]) for said, run in given)
        n_agents = sum(said[1] == run["mistake_agent"] for said, run in given)
        n_speakers = sum(said[1] == speaker(run["history"][int(run["mistake_step"])]) for said, run in given)
        shares = ", ".join(
            f"{what} {n / len(runs):.2f}"
            for what, n in (("step", n_steps), ("agent", n_agents), ("speaker of the step", n_speakers))
        )
        yield f"{name}: {shares} ({len(given)} of {len(runs)} answered)"


if __name__ == "__main__":
    for found in measure(*map(Path, sys.argv[1:2])):
        print(found)
