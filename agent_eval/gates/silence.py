"""Evaluate the silent_turns gate: the share of the turns requiring a reply in which the agent gave none."""

from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from agent_eval.gates.coverage import NOTHING_TO_READ
from agent_eval.gates.finding import GateFinding, Result, listed
from agent_eval.metrics.base import ENDED, NO_REPLY
from agent_eval.metrics.builtin.agent_behavior_failure import SILENCE
from agent_eval.metrics.metric_set import OF_SILENCE
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.scores.statistics.exact import rounded
from agent_eval.settings.gate_spec import Rules
from agent_eval.tables.agent_version import AgentVersion

_TURN = (*PAIR, "conversation_id", "turn_index")


@dataclass(frozen=True)
class Silence:
    """Hold the turns of a pair that required a reply, those without one, and those that ended the conversation.

    `unanswered` lists the conversations that have a user message but no reply in any turn.
    """

    n_due: int = 0
    silent: tuple[
        str, ...
    ] = ()  # turns without a reply as 'conversation#turn'; parts are in the order of their ids
    n_ended: int = 0
    is_looked_for: bool = False  # whether a metric that detects missing replies was asked
    unanswered: tuple[str, ...] = ()  # conversation ids, sorted

    def __add__(self, other: "Silence") -> "Silence":
        """Return the facts of both parts of a pair's conversations."""
        return Silence(
            self.n_due + other.n_due,
            self.silent + other.silent,
            self.n_ended + other.n_ended,
            self.is_looked_for or other.is_looked_for,
            self.unanswered + other.unanswered,
        )


def silences(turn_judgments: pl.DataFrame, transcripts: pl.DataFrame) -> dict[AgentVersion, Silence]:
    """Count, per pair, the turns without a reply, using the judgments by rules.

    A person's rating of such a turn changes its rating but not the count of silent turns. A turn that required no
    reply (the user acted, or wrote nothing) and did not end the conversation is not counted, nor is one that the harness
    lost.

    Args:
        turn_judgments: Table turn_judgments.
        transcripts: Table transcripts with the number of user messages per conversation. A conversation that is
            missing from it is assumed to have a user message.
    """
    decided = pl.col("metric").is_in(list(OF_SILENCE))
    by_rule = decided & (pl.col("judge") == "rule") & (pl.col("status") == "scored")
    is_label = (pl.col("label") == SILENCE) | pl.col("further_labels").list.contains(SILENCE)
    reason = pl.col("unscored_reason")
    flags = pl.col("is_silent", "is_ended", "is_due", "is_looked_for")
    turns = (
        turn_judgments.lazy()
        .filter(~reason.is_in(NOTHING_TO_READ).fill_null(False))
        .select(
            *_TURN,
            run=pl.struct(_TURN).rle_id(),  # the rows of a turn mostly follow each other
            is_silent=by_rule & (is_label | (pl.col("rating_1to5") == 1)),
            is_ended=reason == ENDED,
            is_due=reason.ne_missing(NO_REPLY),
            is_looked_for=decided,
        )
        .group_by("run")
        .agg(pl.first(*_TURN), flags.any())
        .group_by(_TURN)
        .agg(flags.any())
        .sort(_TURN)
        .collect()
    )
    place = pl.format("{}#{}", "conversation_id", "turn_index")
    owed = pl.col("is_due") & ~pl.col("is_ended")
    per_pair = turns.group_by(PAIR).agg(
        owed.sum(), place.filter("is_silent"), pl.col("is_ended").sum(), pl.col("is_looked_for").any()
    )
    unanswered = _unanswered(turns.with_columns(is_replied=owed & ~pl.col("is_silent")), transcripts)
    return {
        pair: Silence(n_due, tuple(silent), n_ended, is_looked_for, unanswered.get(pair, ()))
        for version, agent, n_due, silent, n_ended, is_looked_for in per_pair.iter_rows()
        for pair in [AgentVersion(agent, version)]
    }


def _unanswered(turns: pl.DataFrame, transcripts: pl.DataFrame) -> dict[AgentVersion, tuple[str, ...]]:
    """Return, per pair, the conversations that have a user message but no reply in any turn."""
    key = [*PAIR, "conversation_id"]
    by_agent = (
        turns.group_by(key)
        .agg(pl.col("is_replied").any())
        .filter(~pl.col("is_replied"))
        .join(transcripts.select(*key, "n_user_messages"), on=key, how="left")
        .filter(pl.col("n_user_messages").fill_null(1) > 0)
        .sort(key)
        .group_by(PAIR, maintain_order=True)
        .agg("conversation_id")
    )
    return {AgentVersion(agent, version): tuple(names) for version, agent, names in by_agent.iter_rows()}


def silence_finding(rules: Rules, silence: Silence) -> GateFinding | None:
    """Return the finding of the silent_turns gate, or None if the gate is switched off.

    It is failed if the share of silent turns exceeds the limit. It is unknown if the metrics that detect missing
    replies were not asked, if all turns that required a reply ended the conversation, or if a whole conversation has no reply by the agent: its last turn ended the conversation
    and does not count as silent, but nothing shows that the agent works. Otherwise it is passed, also if no turn required a reply.
    """
    allowed = rules.silent_turns
    if allowed is None:
        return None
    n = silence.n_ended
    ended = f"; {n} turn{'s' if n > 1 else ''} ended the conversation" if n else ""
    if n_unanswered := len(silence.unanswered):
        of = f"{n_unanswered} conversation{'s' if n_unanswered > 1 else ''}"
        ended += f"; {of} without any reply of the agent: {listed(silence.unanswered)}"
    if not silence.is_looked_for and silence.n_due:
        off = ", ".join(sorted(OF_SILENCE))
        return GateFinding("silent_turns", "unknown", f"{off} are switched off", threshold=allowed)
    if not silence.n_due:
        none: Result = "unknown" if silence.unanswered or silence.n_ended else "passed"
        return GateFinding("silent_turns", none, f"no turn required a reply{ended}", threshold=allowed)
    share = Fraction(len(silence.silent), silence.n_due)
    where = f": {listed(silence.silent)}" if silence.silent else ""
    evidence = (
        f"{len(silence.silent)} of {silence.n_due} turns without a reply, {rounded(share * 100)} %{where}; "
        f"allowed {rounded(allowed * 100)} %{ended}"
    )
    result: Result = "failed" if share > allowed else "unknown" if silence.unanswered else "passed"
    return GateFinding("silent_turns", result, evidence, value=share, threshold=allowed)
