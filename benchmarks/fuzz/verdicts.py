"""The door of recorded verdicts."""

from pathlib import Path

from hypothesis import strategies as st

from agent_eval.judge.inputs.recorded_verdicts import RecordedJudge, read_verdicts, verdicts_hash
from agent_eval.judge.keys import cache_key, question_key
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from benchmarks.fuzz.holding import check_refusals, check_store, check_text
from benchmarks.fuzz.hostile import changed_bytes, changed_json, json_bytes, lines_of, texts, values
from tests.judge.material import recorded

VERDICT = recorded("hash", 0, HELPFULNESS, rating_1to5=4)


@st.composite
def _keyed(draw: st.DrawFn) -> dict[str, object]:
    """A verdict whose keys are right, on and by whatever texts."""
    content, model = draw(texts), draw(texts)
    parameters = {"x": draw(values)} if draw(st.booleans()) else {}
    question = question_key(
        content, 0, HELPFULNESS.name, str(VERDICT["rubric_hash"]), str(VERDICT["profile_version"])
    )
    keys = {"question_key": question, "cache_key": cache_key(question, model, parameters)}
    return {**VERDICT, "content_hash": content, "model": model, "parameters": parameters, **keys}


def _lines(records: list[object]) -> bytes:
    return b"".join(json_bytes(record) + b"\n" for record in records)


whole = st.lists(_keyed() | changed_json(VERDICT) | st.just(VERDICT), max_size=4).map(_lines)
inputs = whole | whole.flatmap(changed_bytes)


def check(content: bytes, root: Path, *, store: bool = False) -> None:
    """Each line is a verdict, a repetition of one, or a refusal; a judge can answer from what was read."""
    folder = root / "data" / "verdicts"
    folder.mkdir(parents=True)
    (folder / "v.jsonl").write_bytes(content)
    frame, refusals = read_verdicts(folder)
    check_refusals(refusals)
    check_text(frame)
    if not content.startswith(b"\x1f\x8b"):
        there = lines_of(content)
        assert sorted(frame["cache_key"]) == sorted({key for line in there for key in _alone(root, line)})
        assert frame.height + len(refusals) <= len(there)
    assert verdicts_hash(frame) == verdicts_hash(read_verdicts(folder)[0])
    RecordedJudge(frame)
    if store and not frame.is_empty():
        check_store(root, {"judge_cache": frame})


def _alone(root: Path, line: bytes) -> list[str]:
    """The key of the verdict that a line holds by itself; none when it is refused, in one line."""
    folder = root / "data" / "alone"
    folder.mkdir(exist_ok=True)
    (folder / "v.jsonl").write_bytes(b"\n" + line)  # a byte order mark is one at the beginning only
    frame, refusals = read_verdicts(folder)
    assert frame.height + len(refusals) == 1
    return frame["cache_key"].to_list()
