"""Read judgments of whole conversations by other tools' judges, and compute their agreement with ours.

The input format is that of tau2-bench's judge viewer: a JSON object (or .json.gz) with a list `entries`, whose items
have `simulation_id` (the conversation id), `judge_verdict`, `judge_justification`, `judge_model` and
`judge_prompt_name`. Foreign judgments never affect a score.

If an entry has `agreement` and `tau2_success`, its verdict is derived from them; if `agreement` is null, the source
could not read the verdict. Otherwise, the verdict is derived from the words in PASSED_WORDS. Ties, unknown words and
words that contradict `agreement` are not verdicts.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl
from pydantic import JsonValue

from agent_eval.formats.json_text import clean, loads
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import MEGABYTE, broken, opened
from agent_eval.judge.audits.drift import label_kappa

FOREIGN = {
    "conversation_id": pl.String,
    "judge": pl.String,  # model and name of the prompt
    "is_passed": pl.Boolean,  # null if the verdict could not be read
    "is_success": pl.Boolean,  # success of the conversation according to the file; null if missing
    "rationale": pl.String,
    "file": pl.String,
    "entry": pl.Int64,  # 1-based
}
LARGEST = 64 * MEGABYTE
PASSED_WORDS = {
    **dict.fromkeys(("pass", "passed", "satisfied", "satisfactory", "compliant", "correct", "yes"), True),
    **dict.fromkeys(
        (
            "fail",
            "failed",
            "unsatisfied",
            "unsatisfactory",
            "non-compliant",
            "noncompliant",
            "incorrect",
            "no",
        ),
        False,
    ),
}


TIES = ("tie", "tied", "draw", "both", "mixed")


def read_foreign(paths: Iterable[Path]) -> tuple[pl.DataFrame, list[Refusal]]:
    """Return the judgments in the files, one row per valid entry, and the rejected entries.

    An entry whose verdict cannot be read is rejected, but also has a row without a verdict. If a judge has several
    verdicts on a conversation, all but the first are rejected.
    """
    rows: dict[tuple[str, str], dict[str, object]] = {}
    refusals: list[Refusal] = []
    for path in paths:
        file = clean(path.name)
        entries = _entries(path)
        if isinstance(entries, str):
            refusals.append(Refusal(file, 0, entries))
            continue
        for number, entry in enumerate(entries, start=1):
            parsed_entry = _row(entry, file, number)
            if isinstance(parsed_entry, str):
                refusals.append(Refusal(file, number, parsed_entry))
                continue
            key = (str(parsed_entry["conversation_id"]), str(parsed_entry["judge"]))
            if key in rows:
                refusals.append(
                    Refusal(file, number, f"{key[1]} already has a verdict on conversation {key[0]!r:.80}")
                )
                continue
            if problem := parsed_entry.pop("problem"):
                refusals.append(Refusal(file, number, str(problem)))
            rows[key] = parsed_entry
    return pl.DataFrame(list(rows.values()), schema=FOREIGN), refusals


def json_of(path: Path) -> tuple[JsonValue, str | None]:
    """Return the content of a JSON file (or .json.gz), or None and the reason why it cannot be read."""
    try:
        with opened(path) as stream:
            data = stream.read(LARGEST + 1)
    except (OSError, EOFError, ValueError) as error:
        return None, broken(error)
    if len(data) > LARGEST:
        return None, f"the file is larger than {LARGEST // MEGABYTE} MB unpacked"
    try:
        return loads(data.decode("utf-8-sig")), None
    except (ValueError, RecursionError) as error:
        return None, f"the file is not JSON: {str(error)[:100]}"


def _entries(path: Path) -> list[JsonValue] | str:
    value, problem = json_of(path)
    if problem:
        return problem
    entries = value.get("entries") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        return 'expected a JSON object with a list "entries", as tau2-bench\'s judge viewer writes it'
    return entries


def _row(entry: JsonValue, file: str, number: int) -> dict[str, object] | str:
    if not isinstance(entry, dict):
        return "an entry is not an object"
    name = entry.get("simulation_id")
    if not isinstance(name, str) or not name:
        return "simulation_id is missing; it is the id of the conversation"
    model, prompt = entry.get("judge_model") or "?", entry.get("judge_prompt_name") or "?"
    is_passed, problem = _verdict(entry)
    return {
        "conversation_id": clean(name),
        "judge": clean(f"{model} {prompt}"),
        "is_passed": is_passed,
        "is_success": _flag(entry.get("tau2_success")),
        "rationale": clean(str(entry.get("judge_justification") or "")),
        "file": file,
        "entry": number,
        "problem": problem,
    }


def _verdict(entry: Mapping[str, JsonValue]) -> tuple[bool | None, str | None]:
    """Return whether the judge passed the conversation, or None and the reason why the verdict cannot be read."""
    verdict_text = entry.get("judge_verdict")
    flag = _flag(verdict_text)
    by_word, problem = passed_by_word(verdict_text if isinstance(verdict_text, str) else None)
    by_word, problem = (by_word, problem) if flag is None else (flag, None)
    success, agrees = _flag(entry.get("tau2_success")), _flag(entry.get("agreement"))
    if "agreement" not in entry or success is None:
        return by_word, problem
    if agrees is None:
        return None, f"judge_verdict {verdict_text!r:.40} could not be read by its source: agreement is null"
    by_source = success == agrees
    if by_word is not None and by_word != by_source:
        return None, f"judge_verdict {verdict_text!r:.40} contradicts agreement and tau2_success"
    return by_source, None


def _flag(value: JsonValue) -> bool | None:
    """Return a boolean given as a JSON boolean or as 0 or 1, or None for any other value."""
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def passed_by_word(verdict_text: str | None) -> tuple[bool | None, str | None]:
    """Return whether a verdict in words is a pass, or None and the reason if it is neither pass nor fail."""
    word = (verdict_text or "").strip(" \t\r\n*_`\"'.!").casefold()
    if word in PASSED_WORDS:
        return PASSED_WORDS[word], None
    if word in TIES:
        return None, f"verdict {verdict_text!r:.40} is a tie, neither pass nor fail"
    return None, f"verdict {verdict_text!r:.40} is not known; known: {', '.join(PASSED_WORDS)}"


def kept_policy(judgments: pl.DataFrame) -> dict[str, bool]:
    """Return whether all judged turns of a conversation comply with the policy, by conversation id.

    Conversations without a judged turn are omitted.

    Args:
        judgments: Effective rows of turn_judgments for the metric policy_adherence.
    """
    policy_values = (
        judgments.filter(pl.col("status") == "scored").group_by("conversation_id").agg(pl.col("value").min())
    )
    return {name: value == 1 for name, value in policy_values.select("conversation_id", "value").iter_rows()}


def agreement(foreign: pl.DataFrame, ours: Mapping[str, bool]) -> pl.DataFrame:
    """Return the agreement of foreign judges with ours on policy adherence: one row per foreign judge.

    The columns are: `n_foreign`, the number of conversations in the file; `n`, the number of these that both sides
    judged with a readable verdict; `kept_by_foreign` and `kept_by_ours`, the shares of the n that each side found
    compliant, 0–1; `share_equal`, the share of equal verdicts, 0–1; `kappa`, Cohen's kappa. The shares and kappa are
    null if n is 0. Kappa is also null if the expected agreement by chance is 1.
    """
    rows = []
    for (judge,), answers in foreign.sort("judge", "conversation_id").group_by("judge", maintain_order=True):
        read = answers.drop_nulls("is_passed").select("conversation_id", "is_passed")
        both = [(p, ours[c]) for c, p in read.iter_rows() if c in ours]
        n = len(both)
        rows.append(
            {
                "judge": judge,
                "n_foreign": answers.height,
                "n": n,
                "kept_by_foreign": sum(a for a, _ in both) / n if n else None,
                "kept_by_ours": sum(b for _, b in both) / n if n else None,
                "share_equal": sum(a == b for a, b in both) / n if n else None,
                "kappa": label_kappa([str(a) for a, _ in both], [str(b) for _, b in both]),
            }
        )
    numbers = ("kept_by_foreign", "kept_by_ours", "share_equal", "kappa")
    counts = ("n_foreign", "n")
    schema = {"judge": pl.String, **dict.fromkeys(counts, pl.Int64), **dict.fromkeys(numbers, pl.Float64)}
    return pl.DataFrame(rows, schema=schema)
