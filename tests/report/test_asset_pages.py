"""The pages of assets in the Dagster UI."""

import base64
import re

import polars as pl
import pytest

from agent_eval.formats import spill
from agent_eval.project import Project
from agent_eval.report.asset_pages.conversations import (
    MOST_CONVERSATIONS,
    MOST_TURNS,
    TURN_COLUMNS,
    conversations_page,
    first_turns,
    shown_first,
)
from agent_eval.report.asset_pages.pages import MOST_ON_BOARD, PREVIEW_BYTES, asset_page, partition_figures
from agent_eval.scores.composite.leaderboard import leaderboard
from agent_eval.scores.statistics.distribution_free import IntervalMethod
from agent_eval.tables import table
from tests.scores.test_leaderboard import sessions


@pytest.mark.parametrize("interval", ["auto", "t", "bounded"])
def test_the_page_of_a_composite_draws_the_interval_of_its_board(interval: IntervalMethod) -> None:
    scores = table("composite_scores").frame(
        [sessions("a", [78.0, 79.0, 80.0, 81.0, 82.0], session_ids=list("abcde"))]
    )
    data = re.search(r"base64,([A-Za-z0-9+/=]+)", asset_page("composite_scores", scores, scores, interval))
    assert data is not None
    board = leaderboard(scores, table("agents").empty(), table("reliability").empty(), None, interval)
    low, high = board.select("low", "high").row(0)
    # the axis takes 3.6 units for a point, from 190 on
    assert f"M{190 + 3.6 * low:.1f} 208H{190 + 3.6 * high:.1f}" in base64.b64decode(data[1]).decode()


def transcript(conversation_id: str, **fields: object) -> dict[str, object]:
    default = {
        "methodology_version": "1.3.0", "agent_id": "a", "conversation_id": conversation_id, "session_id": "s",
        "benchmark_id": "s", "tests": [], "n_turns": 20, "n_user_messages": 20, "n_tool_calls": 1, "is_admitted": True,
        "content_hash": "0f", "source_file": "a/s/conversations.jsonl", "source_line": 4,
    }  # fmt: skip
    return default | fields


def turn(index: int, message: str, conversation_id: str = "c") -> dict[str, object]:
    return {
        "agent_id": "a", "conversation_id": conversation_id, "turn_index": index, "user_message": message,
        "agent_message": "ok", "messages": "[]", "n_tool_calls": 0, "content_hash": "h",
    }  # fmt: skip


def test_a_page_shows_the_first_turns_of_a_conversation_as_inert_text() -> None:
    shown = shown_first(table("transcripts").frame([transcript("c")]))
    hostile = "<script>alert(1)</script> [x](javascript:y) | \u202e" + "z" * 1000
    turns = table("turns").frame([turn(0, hostile), *(turn(i, f"message {i}") for i in range(1, 20))])
    held = turns.join(first_turns(shown), on=["agent_id", "conversation_id", "turn_index"], how="semi")
    text = conversations_page(shown, held.select(TURN_COLUMNS))
    facts = "conversations.jsonl, line 4 · 20 turns · 1 tool call · counts · hash 0f"
    assert facts in text.replace("\\", "")
    assert "message 5" in text
    assert "message 6" not in text
    assert f"{20 - MOST_TURNS} more turns" in text
    assert all(found not in text for found in ("<script", "[x](", "\u202e", "z" * 200))


def test_conversations_that_count_are_shown_first_and_few_of_them() -> None:
    ids = [f"c{i}" for i in range(MOST_CONVERSATIONS)]
    rows = [transcript("a", is_admitted=False, reason="superseded by t"), *map(transcript, ids)]
    assert shown_first(table("transcripts").frame(rows))["conversation_id"].to_list() == ids
    text = conversations_page(table("transcripts").frame(rows[:1]), table("turns").empty())
    assert "does not count: superseded by t" in text


def judgments() -> pl.DataFrame:
    """Judgments of two versions by a priced and an unpriced model, people and rules; two prompts are shared."""
    fields = {"is_effective": True, "n_tokens_in": 10, "n_tokens_out": 1}
    rows = [
        {"methodology_version": version, "agent_id": "a", "conversation_id": f"c{i % 7}", "turn_index": i, "metric": metric,
         "judge": judge, "status": "unscored" if i == 5 else "scored", "rating_1to5": None if i == 5 else 1 + i % 5,
         "prompt_hash": f"p{i // 2}", "cost_usd": None if judge == "gpt" and version == "1.3.0" else 0.25} | fields
        for i in range(12) for version in ("1.2.0", "1.3.0")
        for metric, judge in (("helpfulness", "gpt"), ("verbosity", "rule"), ("clarity", "human"))
    ]  # fmt: skip
    return table("turn_judgments").frame(rows)


@pytest.mark.parametrize("n_parts", [1, 2, 5])
def test_figures_of_rows_in_files_are_those_of_rows_in_memory(
    n_parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "IN_MEMORY", 0)
    rows = judgments()
    partitions = rows.select("methodology_version", "agent_id").unique().sort(pl.all())
    size = -(-rows.height // n_parts)
    cut = ({"rows": rows.slice(start, size)} for start in range(0, rows.height, size))
    with spill.spilled(cut) as given:
        found = list(partition_figures("turn_judgments", given["rows"], partitions))
    assert found == list(partition_figures("turn_judgments", rows, partitions))
    priced, unpriced = (page.figures for page in found)
    assert priced == {
        "n_prompts_answered": 6, "n_tokens_in": 120, "n_tokens_out": 12, "cost_usd": 9.0, "n_unscored": 3
    }  # fmt: skip
    assert "cost_usd" not in unpriced


def test_the_first_figure_of_a_board_is_its_scores_with_their_price(sample: Project) -> None:
    board = sample.table("leaderboard").filter(methodology_version="1.3.0")
    (shown,) = partition_figures("leaderboard", board, board.select("methodology_version").unique())
    assert list(shown.figures) == ["scores"]
    assert "customer_service_v1: 1 Lumen Support 92.3 (71.7–97.6), $" in str(shown.figures["scores"])
    many = pl.concat([board.filter(rank=1)] * 9)
    (shown,) = partition_figures("leaderboard", many, many.select("methodology_version").unique())
    assert str(shown.figures["scores"]).count(" · ") == MOST_ON_BOARD
    assert str(shown.figures["scores"]).endswith(f" · {many.height - MOST_ON_BOARD} more")


def test_a_preview_stays_below_its_size_whatever_the_rows_contain() -> None:
    rows = pl.concat([judgments()] * 40).with_columns(
        rationale=pl.lit("é|" * 400), evidence=pl.lit("`" * 5_000)
    )
    rows = rows.with_columns(conversation_id=pl.format("{}{}", pl.lit("c" * 300), pl.int_range(pl.len())))
    rows = table("turn_judgments").conform(rows.drop("judged_at").with_columns(judged_at=None))
    for page in partition_figures(
        "turn_judgments", rows, rows.select("methodology_version", "agent_id").unique()
    ):
        assert 0 < len(page.preview.encode()) <= PREVIEW_BYTES
        assert page.preview.startswith("| conversation\\_id |")
