"""The parts of the report: names of files, texts with their marks, plots, and the folder it goes to."""

import datetime
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import beta

from agent_eval.errors import StorageError
from agent_eval.report.charts import RankedAgent, line, radar, scatter, span, stacked
from agent_eval.report.html.agent import spreads
from agent_eval.report.html.conversation import Material, said, turn_views
from agent_eval.report.html.folder import MARKER, replacing
from agent_eval.report.html.history import SessionStanding, history_line, run_line, version_line
from agent_eval.report.html.tables import merged_versions
from agent_eval.report.html.texts import LONGEST, Piece, clean, is_in, shown
from agent_eval.report.names import Paths, file_name

IDS = st.text(max_size=80) | st.sampled_from(
    ["../../etc/passwd", "CON", "a/b", ".", "..", "a\x00b", "é" * 200, "a b", "A B"]
)


@given(IDS, IDS)
def test_a_files_name_is_safe_and_ones_own(agent: str, conversation: str) -> None:
    name = file_name(agent, conversation)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert 10 <= len(name) <= 60
    assert not name.startswith("-")


@given(st.lists(st.tuples(IDS, IDS), unique=True, min_size=2, max_size=6))
@example([("ab", "c"), ("a", "bc")])
def test_ids_that_differ_have_names_that_differ(ids: list[tuple[str, str]]) -> None:
    assert len({file_name(*pair) for pair in ids}) == len(ids)


def test_a_turn_of_a_long_conversation_lies_on_a_later_page() -> None:
    paths = Paths("1.3.0")
    assert paths.conversation("a", "c", 99).endswith(".html#turn-99")
    assert paths.conversation("a", "c", 100).endswith(".2.html#turn-100")
    assert paths.conversation("a", "c", 99).partition("#")[0] == paths.conversation("a", "c")


@given(st.text(max_size=300), st.lists(st.tuples(st.integers(1, 9), st.text(max_size=20)), max_size=4))
def test_marking_quotes_changes_no_text(text: str, quotes: list[tuple[int, str]]) -> None:
    assert "".join(piece.text for piece in shown(text, quotes).pieces) == clean(text)


@given(st.text(min_size=1, max_size=100), st.data())
def test_every_quote_that_was_taken_from_a_text_is_found_in_it(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    quote = text[start : data.draw(st.integers(start + 1, len(text)))]
    if any(not c.isspace() for c in clean(quote)):
        assert is_in(clean(text), quote)


def test_a_quote_is_marked_whatever_its_whitespace() -> None:
    pieces = (Piece("It "), Piece("costs\n  EUR 4.90", 3), Piece(" in all"))
    assert shown("It costs\n  EUR 4.90 in all", [(3, "costs EUR 4.90")]).pieces == pieces


def test_a_quote_is_marked_whether_its_accents_are_composed_or_not() -> None:
    for text, quoted in (("The cafe\u0301 opens.", "caf\u00e9"), ("The caf\u00e9 opens.", "cafe\u0301")):
        assert is_in(text, quoted)


def test_of_quotes_that_overlap_the_first_is_marked() -> None:
    marks = [p.mark for p in shown("one two three", [(1, "two three"), (2, "one two")]).pieces]
    assert marks == [2, None]


def test_a_text_is_cut_at_its_limit_and_says_by_how_much() -> None:
    cut = shown("x" * (LONGEST + 7))
    assert (cut.n_cut, cut.is_folded) == (7, True)


def test_line_ends_are_of_one_kind_and_control_characters_are_shown() -> None:
    assert clean("a\r\nb\rc\x1b[31m\u202ed") == "a\nb\nc\ufffd[31m\ufffdd"


def test_a_radar_of_four_equal_ratings_is_a_square() -> None:
    # rating 5 lies on the outer ring of radius 100, at 12, 3, 6 and 9 o'clock
    plot = radar([(name, name, 5.0) for name in "abcd"])
    assert plot.outline == "0.0,-100.0 100.0,0.0 0.0,100.0 -100.0,0.0"
    assert [axis.anchor for axis in plot.axes] == ["middle", "start", "middle", "end"]


def test_a_missing_rating_leaves_a_gap_and_is_named() -> None:
    plot = radar([("a", "a", 5.0), ("b", "b", None), ("c", "c", 2.5)])
    assert plot.outline is None
    assert plot.lines == (((-43.3, 25.0), (0.0, -100.0)),)  # from c to a only
    assert plot.summary == "a 5.00, b missing, c 2.50"


def test_a_stacked_bar_gives_each_rating_its_share() -> None:
    # 1 of 4 and 3 of 4
    parts = [(p.name, p.n, p.start, p.width) for p in stacked({5: 3, 2: 1})]
    assert parts == [("2", 1, 0.0, 25.0), ("5", 3, 25.0, 75.0)]
    assert stacked({}) == ()


def test_an_interval_is_drawn_on_its_scale() -> None:
    drawn, alone = span(0.5, 0.25, 1.0, scale=1), span(70.0, None, None)
    assert drawn is not None
    assert alone is not None
    assert (drawn.at, drawn.low, drawn.width, alone.width) == (50.0, 25.0, 75.0, 0)
    assert span(None, None, None) is None


def test_rows_that_only_differ_in_version_and_cost_are_one() -> None:
    columns = ("methodology_version", "metric", "further_labels", "cost_usd")
    told = ("coherence", ["a", "b"])
    rows = [("1.2.0", *told, 0.1), ("1.3.0", *told, 0.2), ("1.3.0", "relevance", [], None)]
    merged = merged_versions(pl.DataFrame(rows, schema=columns, orient="row"))
    assert [sorted(v) for v in merged["versions"]] == [["1.2.0", "1.3.0"], ["1.3.0"]]
    assert merged["further_labels"].to_list() == [["a", "b"], []]


def written(folder: Path, text: str = "page") -> None:
    with replacing(folder) as fresh:
        (fresh / "sub").mkdir()
        (fresh / "sub" / "page.html").write_text(text)


def broken_off(folder: Path) -> None:
    with replacing(folder) as fresh:
        (fresh / "new.html").write_text("new")
        raise RuntimeError


def contents(folder: Path) -> dict[str, str]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != MARKER)
    return {p.relative_to(folder).as_posix(): p.read_text() for p in files}


def test_an_earlier_report_is_replaced_whole(tmp_path: Path) -> None:
    written(tmp_path / "out", "old")
    with replacing(tmp_path / "out") as fresh:
        (fresh / "new.html").write_text("new")
        assert contents(tmp_path / "out") == {"sub/page.html": "old"}  # until the new one is done
    assert contents(tmp_path / "out") == {"new.html": "new"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("mine", ["notes.txt", "sub/notes.txt", ".git/config", MARKER])
def test_a_folder_with_files_of_others_is_left_alone(tmp_path: Path, mine: str) -> None:
    folder = tmp_path / "out"
    (folder / mine).parent.mkdir(parents=True)
    (folder / mine).write_text("{}")
    (folder / "kept.txt").write_text("keep me")
    with pytest.raises(StorageError, match="report cannot be written"):
        written(folder)
    assert (folder / "kept.txt").read_text() == "keep me"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("left_behind", [False, True])
def test_an_empty_folder_becomes_a_report_also_where_an_earlier_attempt_left_one(
    tmp_path: Path, *, left_behind: bool
) -> None:
    (tmp_path / "out").mkdir()
    if left_behind:
        (tmp_path / ".out.old").mkdir()
    with replacing(tmp_path / "out") as fresh:
        (fresh / "index.html").write_text("x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert (tmp_path / "out" / "index.html").is_file()


@pytest.mark.parametrize("mine", ["notes.txt", "sub/notes.txt", "empty", "link"])
def test_what_was_put_into_an_earlier_report_is_named_and_kept(tmp_path: Path, mine: str) -> None:
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    written(folder)
    elsewhere.mkdir()
    (elsewhere / "kept.txt").write_text("keep me")
    if mine == "empty":
        (folder / mine).mkdir()
    elif mine == "link":
        (folder / mine).symlink_to(elsewhere)
    else:
        (folder / mine).write_text("keep me")
    with pytest.raises(StorageError, match=mine):
        written(folder, "new")
    assert contents(folder)["sub/page.html"] == "page"
    assert (folder / mine).exists()
    assert (elsewhere / "kept.txt").read_text() == "keep me"


def test_a_report_that_failed_half_way_leaves_the_earlier_one(tmp_path: Path) -> None:
    written(tmp_path / "out", "old")
    with pytest.raises(RuntimeError):
        broken_off(tmp_path / "out")
    assert contents(tmp_path / "out") == {"sub/page.html": "old"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_run_left_behind_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / ".out.new"
    left.mkdir()
    (left / MARKER).write_text(json.dumps({"files": []}))
    (left / "half.html").write_text("half")
    written(tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_cannot_be_created_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"/file/deep/out: Not a directory; name another folder"):
        written(tmp_path / "file" / "deep" / "out")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("keep me")
    with pytest.raises(StorageError, match="it is a file"):
        written(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "keep me"


def test_an_empty_message_of_the_agent_is_shown_as_one() -> None:
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}]
    turn = {"turn_index": 0, "messages": json.dumps(said), "n_tool_calls": 0, "latency_ms": None}
    [view], _ = turn_views(Material({}, (), [turn], (), (), (), ()), [turn])
    assert [part.title for part in view.spoken] == ["User", "Agent: an empty message"]


CALL_IDS = st.sampled_from([None, "a", "b"])
MESSAGES = st.one_of(
    st.builds(lambda call: {"role": "tool", "tool_call_id": call, "content": "r"}, CALL_IDS),
    st.builds(
        lambda ids, text: {"role": "assistant", "content": text, "tool_calls": [{"id": i, "name": "t"} for i in ids]},
        st.lists(CALL_IDS, max_size=3),
        st.sampled_from([None, "text"]),
    ),
)  # fmt: skip


@given(st.lists(MESSAGES, max_size=8))
def test_every_step_is_shown_once_and_a_result_below_its_call(messages: list[dict[str, Any]]) -> None:
    shown = list(said(messages))
    assert Counter(s.message for s in shown if s.kind == "result") == Counter(
        i for i, message in enumerate(messages) if message["role"] == "tool"
    )
    others = [s.message for s in shown if s.kind != "result"]
    assert others == sorted(others)
    n_calls = sum(len(message.get("tool_calls", ())) for message in messages)
    assert [s.depth for s in shown if s.kind == "call"] == [1] * n_calls
    for before, step in itertools.pairwise(shown):
        assert step.depth != 2 or before.depth in (1, 2)
    turn = {"turn_index": 0, "messages": json.dumps(messages), "n_tool_calls": n_calls, "latency_ms": None}
    [view], _ = turn_views(Material({}, (), [turn], (), (), (), ()), [turn])
    assert sorted(s.anchor for s in view.spoken if s.anchor is not None) == list(range(len(messages)))


def test_the_results_of_parallel_calls_stand_below_them_with_what_the_turn_took() -> None:
    calls = [{"id": "a", "name": "x"}, {"id": "b", "name": "y"}]
    usage = {"input_tokens": 1000, "completion_tokens": 20}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": calls, "latency_ms": 900, "usage": usage, "cost_usd": 0.25},
        {"role": "tool", "tool_call_id": "b", "content": "of y", "is_error": True},
        {"role": "tool", "tool_call_id": "a", "content": "of x"},
        {"role": "assistant", "content": "Done.", "usage": {"prompt_tokens": 5}, "cost_usd": 0.5},
    ]
    turn = {"turn_index": 0, "messages": json.dumps(messages), "n_tool_calls": 2, "latency_ms": 1500.0}
    [view], _ = turn_views(Material({}, (), [turn], (), (), (), ()), [turn])
    assert [(s.title, s.depth, s.is_error, s.anchor) for s in view.spoken] == [
        ("User", 0, False, 0), ("Tool call", 1, False, 1), ("Result of x", 2, False, 3),
        ("Tool call", 1, False, None), ("Result of y", 2, True, 2), ("Agent", 0, False, 4),
    ]  # fmt: skip
    assert view.spoken[1].facts == ("0.9 s", "1,000 + 20 tokens", "$0.2500")
    assert view.spoken[-1].facts == ("5 + ? tokens", "$0.5000")
    assert view.sums == ("2 tool calls", "1.5 s", "$0.7500")  # tokens are not known of each reply


def test_the_composite_is_a_line_over_runs_and_versions() -> None:
    columns = ("methodology_version", "recorded_at", "is_on_board", "composite_score", "low", "high")
    hours = [datetime.datetime(2026, 1, 1, hour, tzinfo=datetime.UTC) for hour in range(4)]
    scores = [
        (True, 50.0, 40.0, 60.0),
        (True, None, None, None),
        (False, 50.0, 40.0, 60.0),
        (True, 100.0, None, None),
    ]
    rows = pl.DataFrame(
        [("1.0.0", at, *score) for at, score in zip(hours, scores, strict=True)], columns, orient="row"
    )
    plot = run_line(rows.reverse())
    assert plot is not None
    assert [p.words for p in plot.points] == [
        "2026-01-01 00:00: 50.0 (40.0 to 60.0)",
        "2026-01-01 03:00: 100.0 (no interval)",
    ]
    assert (plot.parts, plot.ends) == (
        (),
        ("2026-01-01 00:00", "2026-01-01 03:00"),
    )  # removed and unknown interrupt
    assert run_line(rows.head(3)) is None
    of_versions = version_line(
        rows.with_columns(methodology_version=pl.Series(["1.0.0", "1.1.0", "1.2.0", "1.3.0"]))
    )
    assert of_versions is not None
    assert of_versions.ends == ("1.0.0", "1.3.0")


def test_a_line_joins_known_shares_only() -> None:
    plot = line([("a", 0.0, 0.0, 0.2), ("b", None, None, None), ("c", 1.0, None, None), ("d", 0.5, 0.2, 0.8)])
    assert plot is not None
    assert [p.y for p in plot.points] == [plot.bottom, plot.top, (plot.top + plot.bottom) / 2]
    assert plot.parts == (" ".join(f"{p.x},{p.y}" for p in plot.points[1:]),)
    assert plot.points[0].words == "a: 0.0 % (0.0 to 20.0)"
    assert plot.points[1].words == "c: 100.0 % (no interval)"
    assert line([("a", 1.0, None, None), ("b", None, None, None)]) is None


def test_the_line_of_a_history_has_jeffreys_intervals() -> None:
    def session(name: str, n_correct: int, n_known: int) -> SessionStanding:
        return SessionStanding(name, None, n_known, None, None, n_correct, n_known, None, None, None, None)

    plot = history_line([session("s1", 3, 8), session("s2", 0, 0), session("s3", 8, 8)])
    assert plot is not None
    low, high = beta(3.5, 5.5).ppf([0.025, 0.975])
    assert plot.points[0].words == f"s1: 37.5 % ({100 * low:.1f} to {100 * high:.1f})"
    assert plot.points[1].words.startswith("s3: 100.0 % (")


def test_a_scatter_draws_scores_over_costs_and_joins_the_pareto_front_of_each_template() -> None:
    free = RankedAgent("cheap", "t", 50.0, cost_usd=0.0, is_front=True)
    assert scatter([free]).points[0].x == 40  # costs of nothing have an axis
    best = RankedAgent("best", "t", 90.0, 80.0, 100.0, 0.4, is_front=True)
    other = RankedAgent("other", "u", 70.0, cost_usd=0.1, is_front=True)
    plot = scatter([best, free, RankedAgent("bad", "t", 0.0, cost_usd=0.4), other])
    best_point, cheap, bad, _ = plot.points
    assert (cheap.x, cheap.y) == (plot.left, (plot.top + plot.bottom) / 2)
    assert best_point.x == bad.x == 297.6  # 40 + 0.8 × 322, as the axis ends at 0.5
    assert (best_point.low, best_point.high, bad.y) == (78.8, plot.top, plot.bottom)
    assert (best_point.anchor, cheap.anchor) == ("end", "start")
    assert plot.fronts == ((0, f"{cheap.x},{cheap.y} {best_point.x},{best_point.y}"),)
    assert plot.groups == ("t", "u")
    assert best_point.words == "best (t): 90.0 (80.0 to 100.0), $0.4000 per conversation"
    assert [label for _, label in plot.ticks] == ["$0", "$0.25", "$0.5"]
    assert plot.unknown is None
    unpriced, priced = scatter([RankedAgent("a", "t", 60.0), free]).points
    assert unpriced.x < priced.x == 40 + 110
    assert unpriced.words == "a (t): 60.0 (no interval), cost unknown"


@pytest.mark.parametrize("n", [2, 5, 60])
def test_names_in_a_scatter_cover_no_other_name(n: int) -> None:
    agents = [
        RankedAgent(f"an agent called {i}", "t", 90 + i / n, cost_usd=0.01 + i / 1_000) for i in range(n)
    ]
    points = scatter(agents).points
    labels = [(p.label, p.anchor) for p in points if p.label is not None]
    boxes = [
        (x - (8 * len(name) if anchor == "end" else 0), x + (0 if anchor == "end" else 8 * len(name)), y)
        for (name, x, y), anchor in labels
    ]
    for (a, b, y), (c, d, z) in itertools.combinations(boxes, 2):
        assert b <= c or d <= a or abs(y - z) >= 15
    assert len(points) == n
    assert len(labels) >= min(n, 5)
    assert all(10 <= y <= 400 for _, _, y in boxes)


def test_the_mean_of_a_metric_that_labels_correct_is_the_corrected_one() -> None:
    answers = pl.DataFrame(
        {"metric": ["goal_completion"] * 2, "status": "scored", "value": [1.0, 0.0], "n": [5, 5]}
    ).with_columns(rating_1to5=pl.lit(None, pl.Int64), label=pl.lit(None, pl.String), unscored_reason=pl.lit(None, pl.String))  # fmt: skip
    [spread] = spreads(answers, {"goal_completion": (0.0, True)})
    assert (spread.mean, spread.is_corrected, spread.labels) == (0.0, True, [("yes", 5), ("no", 5)])
