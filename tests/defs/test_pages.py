"""Every asset says what it is; after a run its page shows how many rows there are, and what is in them."""

import re
import statistics
from io import StringIO
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from agent_eval.commands.errors import errors
from agent_eval.definitions import defs
from agent_eval.defs.partitions import shape_of as partitions_of
from agent_eval.defs.sources import SOURCES as SOURCE_ASSETS
from agent_eval.gates import INPUTS as GATE_INPUTS
from agent_eval.project import Project
from agent_eval.project.report import served_page
from agent_eval.report.asset_pages.pages import PREVIEW_BYTES, PREVIEWED
from agent_eval.tables.schema import MADE_FROM, SOURCES, shape_of
from tests.conftest import REPOSITORY, at_home

GRAPH = defs.resolve_asset_graph()
KEYS = sorted(GRAPH.get_all_asset_keys())
OBSERVED = {key for source in SOURCE_ASSETS for key in source.keys}
LAYERS = {
    "turns": "raw",
    "turn_judgments": "judged",
    "error_clusters": "aggregated",
    "composite_scores": "aggregated",
}
LAYERS |= {"leaderboard": "published", "html_report": "published"}
UNSTORED = {dg.AssetKey("html_report")}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.path[-1])
def test_every_asset_says_what_it_is_whose_it_is_and_what_its_columns_mean(key: dg.AssetKey) -> None:
    node = GRAPH.get(key)
    assert len((node.description or "").split()) >= 8
    assert node.group_name != "default"
    assert node.owners
    assert node.kinds
    assert node.tags["domain"] == node.group_name
    assert node.tags["layer"] == "source" or key not in OBSERVED
    assert node.tags["partition"] == partitions_of(node.partitions_def).replace(" ", "-")
    assert node.tags["layer"] == LAYERS.get(key.path[-1], node.tags["layer"])
    path, _, anchor = str(node.metadata["docs"].value).partition("#")
    assert anchor in (REPOSITORY / path).read_text(encoding="utf-8")
    if key in OBSERVED:
        assert "observed" in node.metadata
    elif key not in UNSTORED:
        columns = node.metadata["dagster/column_schema"].columns
        assert columns
        assert all(column.description for column in columns)


def test_after_a_run_every_event_is_small_and_its_page_shows_the_rows_of_its_own_partition(
    sample_root: Path,
) -> None:
    sizes = []
    with at_home(sample_root) as project, dg.DagsterInstance.get() as instance:
        current = project.registry.current.version
        for key in KEYS:
            if key in OBSERVED | UNSTORED | {dg.AssetKey("judge_audits")}:
                continue  # observed, or made by a schedule of their own
            event = instance.get_latest_materialization_event(key)
            assert event is not None, key
            assert event.asset_materialization is not None, key
            sizes.append(len(dg.serialize_value(event)))
            shown = event.asset_materialization.metadata
            if partitions_of(GRAPH.get(key).partitions_def).endswith(
                "version"
            ):  # the UI opens with this partition
                assert str(event.asset_materialization.partition).endswith(current), key
            if key == dg.AssetKey("leaderboard"):
                assert list(shown)[:3] == ["answer", "board", "report"]
                led = "Lumen Support leads customer_service_v1 by 22.3 points; "
                assert str(shown["answer"].value).startswith(led)
                assert "Cost of a conversation: Lumen Support $0.0080" in str(shown["answer"].value)
                address = str(shown["report"].value).partition("/report/")[2]
                assert served_page(Project.open(sample_root), address) is not None
            if key == dg.AssetKey("error_trends"):
                out = Console(width=1_000, file=StringIO())
                errors(project, out, version=current, agents=(), since=None, as_json=False)
                answer = str(shown["answer"].value)
                assert " ".join(out.file.getvalue().split()).startswith(answer)  # type: ignore[attr-defined]
                home = (served_page(project, "index.html") or b"").decode()
                assert (
                    answer.rpartition(", ")[2].removesuffix(".") in home
                )  # since when the worst error occurs
            n_rows = shown["dagster/partition_row_count"].value
            assert isinstance(n_rows, int), key
            preview = str(shown["preview"].value) if "preview" in shown else ""
            assert ("preview" in shown) == (key.path[-1] in PREVIEWED), key
            assert len(preview.encode()) <= PREVIEW_BYTES, key
            assert not preview or (preview == "no rows") == (n_rows == 0), key
            page = (served_page(project, str(shown["page"].value).removeprefix("/report/")) or b"").decode()
            assert str(event.asset_materialization.partition) in page, key
            assert ("<p>no rows</p>" in page) or n_rows, key
            assert not n_rows or "<td>" in page, key
            assert key != dg.AssetKey("transcripts") or "agent_message" in page
            drawings = re.findall(r'src="data:image/svg[^"]+"', page)
            assert all(len(drawing) < 8_192 for drawing in drawings), key
    assert statistics.mean(sizes) < 4_500


def test_the_graph_as_data_is_that_of_dagster() -> None:
    made = {key.path[-1]: GRAPH.get(key) for key in GRAPH.materializable_asset_keys}
    for name, parents in MADE_FROM.items():
        assert {key.path[-1] for key in made[name].parent_keys} == set(parents), name
        assert partitions_of(made[name].partitions_def) == shape_of(name)
    assert {*GATE_INPUTS} < {*MADE_FROM["gate_results"]}
    assert made.keys() - MADE_FROM.keys() == {"html_report", "judge_audits"}
    sources = GRAPH.get_all_asset_keys() - GRAPH.materializable_asset_keys
    assert {key.path[-1]: partitions_of(GRAPH.get(key).partitions_def) for key in sources} == SOURCES
    order = [*SOURCES, *MADE_FROM]
    assert all(order.index(p) < order.index(name) for name, parents in MADE_FROM.items() for p in parents)
