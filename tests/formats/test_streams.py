"""Lines of a small file are parsed once; those of a large one are read again."""

from pathlib import Path

import pytest

from agent_eval.formats import streams
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import Lines


@pytest.mark.parametrize(("most", "n_parsed"), [(1_000, 3), (10, 6)])
def test_lines_of_a_small_file_are_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, n_parsed: int
) -> None:
    (tmp_path / "c.jsonl").write_text('{"a": 1}\nno JSON\n{"b": 2}\n')
    parsed: list[bytes | None] = []
    record_of = streams.record_of

    def counted(text: bytes | None, number: int, file: str, expected: str = "") -> streams.Record | Refusal:
        parsed.append(text)
        return record_of(text, number, file, expected)

    monkeypatch.setattr(streams, "MOST_KEPT", most)
    monkeypatch.setattr(streams, "record_of", counted)
    lines = Lines(tmp_path / "c.jsonl", "c.jsonl")
    assert [*lines] == [*lines]
    assert len(parsed) == n_parsed
