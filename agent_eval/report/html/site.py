"""The whole report: which pages there are, and the rows that each is made from, read agent by agent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import polars as pl

from agent_eval.methodology import Methodology
from agent_eval.report.html import about, agent, methodology
from agent_eval.report.html import board_pages as board
from agent_eval.report.html.conversation import Material, conversation_pages
from agent_eval.report.html.folder import replacing
from agent_eval.report.html.render import Renderer
from agent_eval.report.html.tables import Reader, by_key, chunks, merged_versions, only
from agent_eval.report.names import Paths
from agent_eval.tables import table

AGENTS_AT_ONCE = 10  # whose judgments, without texts, are in memory together
CONVERSATIONS_AT_ONCE = 250  # whose texts are
_CONVERSATION = ("agent_id", "conversation_id")
_BOARDS = (
    "leaderboard", "reliability_leaderboard", "pairwise_comparisons", "error_trends", "board_changes",
)  # fmt: skip
_PER_AGENT = (
    "composite_scores", "universal_scores", "domain_scores", "rubric_ratings", "transcripts", "sessions",
    "error_clusters", "failures", "reliability",
)  # fmt: skip
_LIGHT = ("turn_judgments", "conversation_judgments")
_PER_CONVERSATION = ("turn_judgments", "conversation_judgments", "rubric_ratings", "tool_correctness")


@dataclass(frozen=True)
class Site:
    """What a report is made from.

    Args:
        read: Gives the stored tables.
        methodologies: The versions with boards, in semantic order.
        shown: The version that index.html shows.
        gates: Table gate_results.
        written: Rows table, n_rows, last_run_id, last_written: how each table came about.
        package_version: The release that makes the report.
        edited: Version → what happened to it, for each that was edited after it was frozen.
    """

    read: Reader
    methodologies: Mapping[str, Methodology]
    shown: str
    gates: pl.DataFrame
    written: pl.DataFrame
    package_version: str
    edited: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Written:
    """A report that was written."""

    index: Path
    n_pages: int
    n_bytes: int


def write_report(site: Site, folder: Path) -> Written:
    """Write the whole report into `folder`, in place of an earlier one; the same store gives the same bytes.

    Raises:
        ReportFolderError: If the folder holds anything but an earlier report.
    """
    paths = Paths(site.shown)
    with replacing(folder) as fresh:
        renderer = Renderer(fresh, _shared(site, paths))
        renderer.assets()
        boards = {name: site.read(name) for name in _BOARDS}
        _write_boards(site, paths, renderer, boards)
        _write_methodologies(site, paths, renderer, boards["leaderboard"])
        agents = _agents(site, boards["leaderboard"])
        judged = [
            _write_agents(site, paths, renderer, boards, some) for some in chunks(agents, AGENTS_AT_ONCE)
        ]
        _write_about(site, paths, renderer, judged, agents)
    return Written(folder / "index.html", renderer.n_pages, renderer.n_bytes)


def _agents(site: Site, leaderboard: pl.DataFrame) -> pl.DataFrame:
    """Every agent that a page may link to: the known ones, and those that only an older board still holds."""
    known = site.read("agents")
    gone = leaderboard.select("agent_id", "name").unique("agent_id", keep="first", maintain_order=True)
    return pl.concat([known, gone.join(known, on="agent_id", how="anti")], how="diagonal").sort("agent_id")


def _shared(site: Site, paths: Paths) -> dict[str, object]:
    versions = list(site.methodologies)
    return {
        "paths": paths,
        "versions": list(reversed(versions)),
        "shown": site.shown,
        "current": next((v for v, m in site.methodologies.items() if m.status == "current"), site.shown),
        "edited": site.edited,
        "unreadable": [
            reason for version, reason in site.edited.items() if version not in site.methodologies
        ],
        "package_version": site.package_version,
        "as_of": site.written["last_written"].max(),
    }


def _write_boards(site: Site, paths: Paths, renderer: Renderer, boards: Mapping[str, pl.DataFrame]) -> None:
    for version in site.methodologies:
        content = board.board_page(
            version,
            site.methodologies,
            paths,
            leaderboard=boards["leaderboard"],
            reliability=boards["reliability_leaderboard"],
            pairwise=boards["pairwise_comparisons"],
            changes=boards["board_changes"],
        )
        renderer.page(paths.board(version), "board.html", content)


def _write_methodologies(site: Site, paths: Paths, renderer: Renderer, leaderboard: pl.DataFrame) -> None:
    for version in site.methodologies:
        content = methodology.methodology_page(version, site.methodologies, paths)
        renderer.page(paths.methodology(version), "methodology.html", content)
    for before, after in combinations(site.methodologies, 2):
        content = methodology.diff_page(before, after, site.methodologies, leaderboard, paths)
        renderer.page(paths.diff(before, after), "diff.html", content)


def _write_agents(
    site: Site, paths: Paths, renderer: Renderer, boards: Mapping[str, pl.DataFrame], agents: pl.DataFrame
) -> pl.DataFrame:
    """The pages of some agents and of their conversations; returns who judged them."""
    keys = agents.select("agent_id")
    columns = sorted({*agent.LIGHT, *about.JUDGED_BY})
    light = {name: _light(site, name, keys, columns) for name in _LIGHT}
    stored = {name: site.read(name, keys) for name in _PER_AGENT}
    stored["conversations"] = site.read("conversations", keys, columns=agent.LISTED)
    frames = stored | {name: frame.select(agent.LIGHT) for name, frame in light.items()}
    frames |= {"error_trends": boards["error_trends"], "gates": site.gates}
    own = {name: frame.partition_by("agent_id", as_dict=True) for name, frame in frames.items()}
    rows = {row["agent_id"]: row for row in agents.to_dicts()}
    for agent_id, row in rows.items():
        mine = {name: own[name].get((agent_id,), frame.clear()) for name, frame in frames.items()}
        everything = agent.Frames(leaderboard=boards["leaderboard"], **mine)
        for version, rules in site.methodologies.items():
            for page in agent.agent_pages(row, version, everything.under(version), rules, paths):
                renderer.page(*page)
    for material in _materials(site.read, stored["conversations"], stored["transcripts"]):
        of_agent = {"agent": rows[material.conversation["agent_id"]]}
        for path, content in conversation_pages(material, paths):
            renderer.page(path, "conversation.html", content | of_agent)
    return about.judges(pl.concat(frame.select(about.JUDGED_BY) for frame in light.values()))


def _light(site: Site, name: str, keys: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Judgments without their texts; those of whole conversations have no turn."""
    if name == "turn_judgments":
        return site.read(name, keys, columns=columns)
    whole = site.read(name, keys, columns=[c for c in columns if c != "turn_index"])
    return whole.with_columns(turn_index=pl.lit(None, pl.Int64)).select(columns)


def _materials(read: Reader, conversations: pl.DataFrame, transcripts: pl.DataFrame) -> Iterator[Material]:
    """Everything of each conversation, read for many at once."""
    slots = by_key(transcripts, *_CONVERSATION)
    for chunk in chunks(conversations, CONVERSATIONS_AT_ONCE):
        keys = chunk.select(_CONVERSATION)
        turns = by_key(read("turns", keys), *_CONVERSATION)
        told = {name: by_key(merged_versions(read(name, keys)), *_CONVERSATION) for name in _PER_CONVERSATION}
        for row in read("conversations", keys).to_dicts():
            key = tuple(row[name] for name in _CONVERSATION)
            rows = {name: only(of_table, *key) for name, of_table in told.items()}
            yield Material(row, only(slots, *key), only(turns, *key), **rows)


def _write_about(
    site: Site, paths: Paths, renderer: Renderer, judged: Sequence[pl.DataFrame], agents: pl.DataFrame
) -> None:
    nobody = about.judges(table("turn_judgments").empty())
    content = about.about_page(
        written=site.written,
        judged=pl.concat([nobody, *judged]),
        sessions=site.read("sessions"),
        import_errors=site.read("import_errors"),
        agents=agents,
    )
    renderer.page(paths.about, "about.html", content)
