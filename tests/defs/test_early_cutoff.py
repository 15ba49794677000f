"""A change stops where it leaves rows as they were, and Dagster and the command agree on what is stale after it."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from agent_eval.commands.run import run
from agent_eval.definitions import defs
from agent_eval.defs import io_manager
from agent_eval.defs.launch import Launch, dagster_home
from agent_eval.formats.spill import Spilled
from agent_eval.project import Project
from agent_eval.project.fingerprints import rows_fingerprints
from agent_eval.tables import table
from agent_eval.tables.schema import shape_of
from tests.defs.io_events import Event, n_of, of_each_run, recorded, repeated_reads
from tests.defs.stale_keys import stale
from tests.defs.test_live import edit_a_session, rate

INGESTED = {"agents", "sessions", "conversations", "turns", "tool_calls", "expected_calls", "import_errors"}
BOARD = {"leaderboard", "board_changes", "board_history", "board_inputs", "pairwise_comparisons"}
"""The boards that read composite_scores."""


def edit(root: Path, name: str, before: str, after: str) -> None:
    file = next((root / "data").glob(name))
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def say_a_word_more(root: Path) -> None:
    edit(
        root,
        "sessions/quill-help/*/conversations.jsonl",
        '"role": "assistant", "content": "',
        '"role": "assistant", "content": "So: ',
    )


Edit = tuple[Callable[[Path], object], str, set[str], set[str]]
EDITS: dict[str, Edit] = {  # the edit, its agent, what is computed (at least), and what is not
    "a comment": (
        lambda root: edit(root, "sessions/quill-help/*/session.yaml", "date:", "# seen again\ndate:"),
        "",
        INGESTED,
        {"transcripts", "gate_results"} | BOARD,
    ),
    "a name": (
        lambda root: edit(root, "agents.yaml", "name: Quill Help", "name: Quill"),
        "",
        INGESTED | {"transcripts", "leaderboard", "gate_results"},
        {"turn_judgments", "rubric_ratings", "composite_scores", "reliability", "judge_calibration"},
    ),
    "a rating": (rate, "harbor-desk", {"turn_judgments", "rubric_ratings", "universal_scores", "leaderboard"}, INGESTED | {"transcripts"}),
    "a reply": (say_a_word_more, "quill-help", INGESTED | {"transcripts", "turn_judgments", "failures", "leaderboard"}, set()),
}  # fmt: skip
RUNS = (["a comment"], ["a name"], ["a rating", "a reply"])  # two edits of different agents share one


def has_place_of(agent: str, asset: str, first_and_last: list[str]) -> bool:
    """Whether partitions from the first to the last are of the agent, or of no agent."""
    return (
        shape_of(asset) == "version"
        or first_and_last[0].split("|")[0] <= agent <= first_and_last[-1].split("|")[0]
    )


def check_reads(events: list[Event]) -> None:
    """A small input is read once until its table is written."""
    assert n_of("read", events) < n_of("input", events)
    runs = of_each_run(events)
    assert len(runs) > 1
    assert [read for of_run in runs for read in repeated_reads(of_run)] == []


@pytest.mark.slow
def test_each_change_is_computed_as_far_as_it_reaches_and_no_partition_twice(
    two_agents_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[tuple[str, ...]] = []
    start = Launch._run

    def record(
        self: Launch, stage: str, assets: list[dg.AssetKey], *partitions: str, is_registered: bool = False
    ) -> str:
        launched.extend((key.path[-1], *partitions) for key in assets)
        return start(self, stage, assets, *partitions, is_registered=is_registered)

    monkeypatch.setattr(Launch, "_run", record)
    for names in RUNS:
        for name in names:
            EDITS[name][0](two_agents_copy)
        by_dagster, by_command = stale()
        assert by_dagster, names
        assert {(a, k) for a in by_dagster for k in by_dagster[a]} <= {
            (a, k) for a in by_command for k in by_command[a]
        }, names
        launched.clear()
        with recorded(monkeypatch) as events:
            run(Project.open())
        if names != ["a comment"]:  # after which nothing is read
            check_reads(events)
        for name in names:
            _, agent, computed, kept = EDITS[name]
            assets = {a for a, *places in launched if not agent or has_place_of(agent, a, places)}
            assert computed <= assets, (name, computed - assets)
            assert not kept & assets, (name, kept & assets)
        assert len({*launched}) == len(launched), names
        assert stale() == ({}, {}), names

    monkeypatch.setattr(io_manager, "_KEPT_INPUT", -1)
    edit_a_session(two_agents_copy)  # and by hand, before a sensor saw the edit
    with dg.DagsterInstance.from_config(str(dagster_home(two_agents_copy))) as instance:
        made = defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(name) for name in INGESTED],
            partition_key="quill-help",
        )
    assert made.success
    by_dagster, by_command = stale()
    assert {"transcripts", "turn_judgments", "composite_scores"} <= by_dagster.keys() <= by_command.keys()
    assert not {*INGESTED, "universal_scores"} & by_dagster.keys()
    with recorded(monkeypatch) as events:
        run(Project.open())
    assert n_of("read", events) == n_of("input", events) > 0  # a large input is not kept
    shutil.rmtree(dagster_home(two_agents_copy))  # another home: what is stored is not stale there either
    assert stale() == ({}, {})


ROWS = pl.DataFrame(
    {
        "agent_id": ["a", "a", "b"],
        "name": ["A", "A2", 'Ünï\n"|'],
        "category": [None, "", "null"],
        "ingest_fingerprint": ["x", "y", "z"],
    }
)
PARTITIONS = pl.DataFrame({"agent_id": ["a", "b", "c"]})


def marks(rows: pl.DataFrame | Spilled) -> dict[tuple[object, ...], str]:
    return rows_fingerprints(table("agents"), rows, PARTITIONS)


def test_the_fingerprint_of_rows_depends_on_their_content_alone(tmp_path: Path) -> None:
    before = marks(ROWS)
    assert before.keys() == {("a",), ("b",), ("c",)}
    assert len({*before.values()}) == 3
    order = list(range(ROWS.height))
    random.Random(1).shuffle(order)
    assert marks(ROWS[order].select(ROWS.columns[::-1])) == before
    parts = [tmp_path / "0", tmp_path / "1"]
    for part, frame in zip(parts, (ROWS[:1], ROWS[1:]), strict=True):
        frame.write_ipc(part)
    assert marks(Spilled(tuple(parts))) == before
    assert marks(ROWS.with_columns(ingest_fingerprint=pl.lit("of other files"))) == before
    for other in (
        ROWS.with_columns(category=pl.col("category").fill_null("")),
        ROWS.with_columns(name=pl.col("name").str.replace("A2", "A")),
        ROWS[[0, 0, 1, 2]],  # once more
        ROWS[1:],
    ):
        assert marks(other)["a",] != before["a",]
        assert marks(other)["b",] == before["b",]


def test_the_fingerprint_of_a_partition_does_not_depend_on_the_others() -> None:
    """Versions with equal rows are hashed once: 0.0 and -0.0 are equal, but not the same row."""
    scores = [1.5, 1.5, -0.0, 0.0, float("nan"), None, 1.5, 1.5, 1.5]
    of_sessions = [[], [], [], [], [], [], None, [2.5, 0.0], [2.5, -0.0]]
    versions = [f"1.{i}.0" for i in range(len(scores))]
    rows = pl.DataFrame(
        {
            "agent_id": "a",
            "methodology_version": versions,
            "composite_score": scores,
            "session_scores": pl.Series(of_sessions, dtype=pl.List(pl.Float64)),
        }
    )
    keys, target = rows.select("agent_id", "methodology_version"), table("composite_scores")
    together = rows_fingerprints(target, rows, keys)
    assert together == rows_fingerprints(target, rows.reverse(), keys)
    for i in range(rows.height):
        assert rows_fingerprints(target, rows[i], keys[i]).items() <= together.items()
    assert len(set(together.values())) == rows.height
