"""Build the whole report: read the rows agent by agent and render all pages."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl

from agent_eval.clusters.worst import worst_clusters
from agent_eval.methodology import Methodology
from agent_eval.methodology.models import in_version_order
from agent_eval.report import about
from agent_eval.report.asset_pages.ingest import CALLS, tool_counts
from agent_eval.report.calibration import calibration_page
from agent_eval.report.clusters import with_own_words
from agent_eval.report.conclusions import failing_tools, with_first_day
from agent_eval.report.downloads import csv_text, json_text
from agent_eval.report.html import agent, methodology
from agent_eval.report.html import board_pages as board
from agent_eval.report.html.conversation import (
    Material,
    Neighbours,
    conversation_pages,
    neighbours,
    source_file,
    with_pages,
)
from agent_eval.report.html.folder import replacing
from agent_eval.report.html.lists.errors import HasPage, errors_page
from agent_eval.report.html.lists.search import search_page
from agent_eval.report.html.markdown import own_tree
from agent_eval.report.html.outcomes import GOALS, decided_alike
from agent_eval.report.html.render import DRAWN, FILE, Renderer
from agent_eval.report.html.side_by_side import side_by_side_page
from agent_eval.report.html.tables import Counter, Reader, Row, by_key, chunks, merged_versions, only
from agent_eval.report.html.texts import shown
from agent_eval.report.names import Paths, file_name
from agent_eval.scores.reliability.trials import GOAL_METRIC
from agent_eval.tables.judging import enters_means

AGENTS_AT_ONCE = 10  # maximum number of agents whose scores and failures are in memory together
LISTED_AT_ONCE = 5_000  # maximum number of conversations of these agents, unless a single agent has more
CONVERSATIONS_AT_ONCE = 250  # maximum number of conversations whose texts are in memory together
_CONVERSATION = ("agent_id", "conversation_id")
_BOARDS = (
    "leaderboard", "reliability_leaderboard", "log_leaderboard", "pairwise_comparisons", "error_trends", "board_changes",
)  # fmt: skip
DOWNLOADS = (
    "leaderboard", "reliability_leaderboard", "log_leaderboard", "pairwise_comparisons", "board_changes",
    "quality_summary", "error_clusters", "reliability", "gate_results",
)  # fmt: skip
"""Tables that can be downloaded as CSV and JSON; each file contains all agents under one version."""
_PER_AGENT = (
    "composite_scores", "universal_scores", "domain_scores", "rubric_ratings", "transcripts", "sessions",
    "error_clusters", "error_issues", "failures", "reliability", "quality_summary",
)  # fmt: skip
_HISTORY = (
    "methodology_version", "agent_id", "recorded_at", "is_on_board", "composite_score", "low", "high",
)  # fmt: skip
_JUDGMENTS = ("turn_judgments", "conversation_judgments")
_PER_CONVERSATION = ("turn_judgments", "conversation_judgments", "rubric_ratings", "tool_correctness")


Page = tuple[str, str, dict[str, Any]]
"""The path of a page relative to the report's folder, the name of its template, and its content."""


@dataclass(frozen=True)
class Site:
    """Hold the inputs of a report.

    Args:
        read: A function that reads stored tables.
        count: A function that counts rows of stored tables.
        methodologies: The versions with boards, in semantic order.
        shown: The version that index.html shows.
        gates: Table gate_results.
        written: When and by which run each table was last written: table, n_rows, last_run_id, last_written.
        package_version: The release that renders the report.
        edited: A description for each version that was edited after it was frozen, by version.
        max_pages: Maximum number of an agent's conversations that have pages; None for no limit.
        served: The links of a report that the Dagster UI serves; None for a report in a folder.
    """

    read: Reader
    count: Counter
    methodologies: Mapping[str, Methodology]
    shown: str
    gates: pl.DataFrame
    written: pl.DataFrame
    package_version: str
    edited: Mapping[str, str] = field(default_factory=dict[str, str])
    max_pages: int | None = None
    served: "Served | None" = None


@dataclass(frozen=True)
class Served:
    """Provide the links of a report that the Dagster UI serves.

    Args:
        runs: The id of the run that last computed the judgments, by agent and version.
        record: A function that returns the JSON text of a conversation's source record, and why it is missing.
        asset_page: A function that returns the partition and the Markdown text of an asset's page by its table and the
            file name of the partition; None if there is no such partition.
    """

    runs: Mapping[str, Mapping[str, str]]
    record: Callable[[Row], tuple[str | None, str | None]]
    asset_page: Callable[[str, str], tuple[str, str] | None]


@dataclass(frozen=True)
class Written:
    """Describe a written report: the path of its first page, and the numbers of pages and bytes."""

    index: Path
    n_pages: int
    n_bytes: int


def write_report(site: Site, folder: Path) -> Written:
    """Write the whole report into `folder`, where it replaces an earlier one; the same store gives the same bytes.

    Raises:
        StorageError: If the folder contains files that are not part of an earlier report.
    """
    paths = Paths(site.shown)
    with replacing(folder) as fresh:
        boards = _boards(site)
        renderer = Renderer(fresh, _shared(site, paths, boards))
        renderer.assets()
        agents = _agents(site, boards["leaderboard"])
        for page in (*_board_pages(site, paths, boards), *_methodology_pages(site, paths, boards)):
            renderer.page(*page)
        for version in site.methodologies:
            renderer.page(*_side_by_side(site, paths, boards, version))
            renderer.page(*_calibration(site, paths, version))
        conversations, has_page = _listed(site)
        renderer.page(*_search_page(site, paths, agents, conversations, has_page))
        for version in site.methodologies:
            renderer.page(*_errors_page(site, paths, boards, agents, has_page, version))
        for page in _downloads(site, paths, boards, site.methodologies):
            renderer.page(*page)
        for some in _batches(site, agents):
            rows = _rows_of(site, some.select("agent_id"))
            of_some = with_pages(rows["conversations"], rows["transcripts"], rows["failures"], site.max_pages)
            for page in _agent_pages(site, paths, boards, some, rows, of_some):
                renderer.page(*page)
            around = neighbours(of_some)
            of_pages = {"conversations": of_some, "transcripts": rows["transcripts"]}
            for page in _conversation_pages(site, paths, some, of_pages, around):
                renderer.page(*page)
        renderer.page(*_about_page(site, paths, agents))
    return Written(folder / "index.html", renderer.n_pages, renderer.n_bytes)


def page_at(site: Site, path: str) -> bytes | None:
    """Return one file of the report by its path relative to the report's folder; None if it does not exist.

    The result is the same as that of `write_report` without a limit on pages, but only the rows of this page are read.
    """
    site = replace(site, max_pages=None)
    paths = Paths(site.shown)
    if path.startswith("assets/"):
        return Renderer.asset(path.removeprefix("assets/"))
    boards = _boards(site)
    renderer = Renderer(Path(), _shared(site, paths, boards))
    matching_pages = (page for page in _pages_below(site, paths, boards, path) if page[0] == path)
    return next((renderer.render(*page) for page in matching_pages), None)


def _pages_below(site: Site, paths: Paths, boards: Mapping[str, pl.DataFrame], path: str) -> Iterator[Page]:
    """Yield a small part of the report's pages that includes the page at `path`, if it exists."""
    agents = _agents(site, boards["leaderboard"])
    match path.split("/"):
        case ["index.html"] | ["boards", _, "index.html" | "logs.html"]:
            yield from _board_pages(site, paths, boards, only=path)
        case ["boards", version, "side-by-side.html"] if version in site.methodologies:
            yield _side_by_side(site, paths, boards, version)
        case ["boards", version, "calibration.html"] if version in site.methodologies:
            yield _calibration(site, paths, version)
        case ["boards", version, "errors.html"] if version in site.methodologies:
            yield _errors_page(site, paths, boards, agents, _listed(site)[1], version)
        case ["boards", version, _] if version in site.methodologies:
            yield from _downloads(site, paths, boards, [version])
        case ["methodology", _]:
            yield from _methodology_pages(site, paths, boards)
        case ["agents", version, file] if version in site.methodologies:
            agent_rows = _named(agents, file, "agent_id")
            only_version = replace(site, methodologies={version: site.methodologies[version]})
            if agent_rows.height:
                rows = _rows_of(site, agent_rows.select("agent_id"))
                yield from _agent_pages(only_version, paths, boards, agent_rows, rows, rows["conversations"])
        case ["conversations.html"]:
            yield _search_page(site, paths, agents, *_listed(site))
        case ["conversations", folder, file]:
            agent_rows = _named(agents, folder, "agent_id")
            listed = site.read("conversations", agent_rows.select("agent_id"), columns=agent.LISTED)
            keys = _named(listed, file, *_CONVERSATION)
            if keys.height:
                transcripts = site.read("transcripts", keys.select(_CONVERSATION))
                of_agent = {"conversations": keys, "transcripts": transcripts}
                yield from _conversation_pages(site, paths, agent_rows, of_agent, neighbours(listed))
        case ["sources", folder, file] if site.served:
            agent_rows = _named(agents, folder, "agent_id")
            listed = site.read("conversations", agent_rows.select("agent_id"), columns=_CONVERSATION)
            keys = _named(listed, file, *_CONVERSATION)
            for row in site.read("conversations", keys).to_dicts() if keys.height else ():
                yield _source_page(paths, row, site.served)
        case ["tables", name, file] if site.served:
            if page := site.served.asset_page(name, file.removesuffix(".html")):
                content = {
                    "table": name,
                    "partition": page[0],
                    "nodes": own_tree(page[1]),
                    "policy": DRAWN,
                }
                yield path, "table.html", content
        case ["about.html"]:
            yield _about_page(site, paths, agents)
        case _:
            return


def _named(rows: pl.DataFrame, file: str, *ids: str) -> pl.DataFrame:
    """Return the rows whose pages have this file name, ignoring the file extension."""
    stem = file.partition(".")[0]
    return rows.filter(
        pl.Series([file_name(*key) == stem for key in rows.select(ids).iter_rows()], dtype=pl.Boolean)
    )


def _boards(site: Site) -> dict[str, pl.DataFrame]:
    return {name: site.read(name) for name in _BOARDS}


def _agents(site: Site, leaderboard: pl.DataFrame) -> pl.DataFrame:
    """Return every agent that a page can link to: stored agents, and agents that are only on an older board."""
    stored = site.read("agents")
    gone = leaderboard.select("agent_id", "name").unique("agent_id", keep="first", maintain_order=True)
    return pl.concat([stored, gone.join(stored, on="agent_id", how="anti")], how="diagonal").sort("agent_id")


def _shared(site: Site, paths: Paths, boards: Mapping[str, pl.DataFrame]) -> dict[str, object]:
    versions = list(site.methodologies)
    return {
        "paths": paths,
        "versions": list(reversed(versions)),
        "shown": site.shown,
        "current": next((v for v, m in site.methodologies.items() if m.status == "current"), site.shown),
        "edited": site.edited,
        "has_logs": not boards["log_leaderboard"].is_empty(),
        "runs": site.served.runs if site.served else None,
        "source_file": source_file,
        "unreadable": [
            reason for version, reason in site.edited.items() if version not in site.methodologies
        ],
        "package_version": site.package_version,
        "as_of": site.written["last_written"].max(),
    }


def _board_pages(
    site: Site, paths: Paths, boards: Mapping[str, pl.DataFrame], *, only: str | None = None
) -> Iterator[Page]:
    """Yield the boards and the logs of all versions, or only the page at path `only`."""
    for version in site.methodologies:
        # the board of the shown version has two addresses: index.html and its permanent address
        templates = dict.fromkeys((paths.board(version), paths.permanent_board(version)), "board.html")
        templates |= {} if boards["log_leaderboard"].is_empty() else {paths.logs(version): "logs.html"}
        paths_to_render = [path for path in templates if only in (None, path)]
        if not paths_to_render:
            continue
        content = board.board_page(
            version,
            site.methodologies,
            paths,
            leaderboard=boards["leaderboard"],
            reliability=boards["reliability_leaderboard"],
            pairwise=boards["pairwise_comparisons"],
            changes=boards["board_changes"],
            logs=boards["log_leaderboard"],
            gates=site.gates,
            worst=_worst(site, version),
        )
        for path in paths_to_render:
            yield path, templates[path], content


def _worst(site: Site, version: str) -> pl.DataFrame:
    """Return the worst error cluster of a version, with its first day; no row without errors."""
    clusters = site.read("error_clusters", pl.DataFrame({"methodology_version": [version]}))
    worst = with_own_words(site.read, worst_clusters(clusters, 1))
    return with_first_day(site.read, worst, clusters)


def _side_by_side(site: Site, paths: Paths, boards: Mapping[str, pl.DataFrame], version: str) -> Page:
    summary = site.read("quality_summary", pl.DataFrame({"methodology_version": [version]}))
    rules = site.methodologies[version]
    content = side_by_side_page(version, rules, paths, boards["leaderboard"], summary)
    return paths.side_by_side(version), "side_by_side.html", content


def _listed(site: Site) -> tuple[pl.DataFrame, HasPage]:
    """Return all conversations (agent_id, conversation_id, outcome_correct), and which of them have a page."""
    conversations = site.read(
        "conversations", columns=(*_CONVERSATION, "session_id", "outcome_correct", "outcome_class")
    )
    paged = conversations
    if site.max_pages is not None:
        of = (*_CONVERSATION, "slot", "tests")
        linked = (site.read("transcripts", columns=of), site.read("failures", columns=_CONVERSATION))
        paged = with_pages(conversations, *linked, site.max_pages)
    with_page = set(paged.select(_CONVERSATION).iter_rows())
    return conversations.drop("session_id"), lambda *conversation: conversation in with_page


def _names(agents: pl.DataFrame) -> dict[str, str]:
    return {row["agent_id"]: row["name"] or row["agent_id"] for row in agents.to_dicts()}


def _search_page(
    site: Site, paths: Paths, agents: pl.DataFrame, conversations: pl.DataFrame, has_page: HasPage
) -> Page:
    content = search_page(site.shown, conversations, has_page, _names(agents), site.read, site.count, paths)
    return paths.search, "search.html", content


def _errors_page(
    site: Site,
    paths: Paths,
    boards: Mapping[str, pl.DataFrame],
    agents: pl.DataFrame,
    has_page: HasPage,
    version: str,
) -> Page:
    content = errors_page(version, _names(agents), site.read, boards["error_trends"], has_page, paths)
    content |= {"failed_calls": failing_tools(tool_counts(site.count("tool_calls", columns=CALLS)))}
    return paths.errors(version), "errors.html", content


def _calibration(site: Site, paths: Paths, version: str) -> Page:
    rows = site.read("judge_calibration", pl.DataFrame({"methodology_version": [version]}))
    return paths.calibration(version), "calibration.html", calibration_page(version, rows, paths)


def _downloads(
    site: Site, paths: Paths, boards: Mapping[str, pl.DataFrame], versions: Collection[str]
) -> Iterator[Page]:
    """Yield the tables of the given versions as CSV and JSON files."""
    frame_of_table = {**boards, "gate_results": site.gates}
    for version in versions:
        of_version = pl.DataFrame({"methodology_version": [version]})
        for name in DOWNLOADS:
            rows = (
                site.read(name, of_version)
                if name not in frame_of_table
                else frame_of_table[name].filter(methodology_version=version)
            )
            for kind, text_of in (("csv", csv_text), ("json", json_text)):
                yield paths.download(version, name, kind), FILE, {"text": text_of(rows)}


def _methodology_pages(site: Site, paths: Paths, boards: Mapping[str, pl.DataFrame]) -> Iterator[Page]:
    for version in site.methodologies:
        content = methodology.methodology_page(version, site.methodologies, paths)
        yield paths.methodology(version), "methodology.html", content
    for before, after in combinations(site.methodologies, 2):
        content = methodology.diff_page(before, after, site.methodologies, boards["leaderboard"], paths)
        yield paths.diff(before, after), "diff.html", content


def _batches(site: Site, agents: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the agents in batches that are read together."""
    sizes = dict(site.count("conversations", columns=["agent_id"]).iter_rows())
    start, n = 0, 0
    for place, agent_id in enumerate(agents["agent_id"]):
        n += sizes.get(agent_id, 0)
        if place > start and (place - start == AGENTS_AT_ONCE or n > LISTED_AT_ONCE):
            yield agents.slice(start, place - start)
            start, n = place, sizes.get(agent_id, 0)
    if start < agents.height:
        yield agents.slice(start)


def _rows_of(site: Site, keys: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the stored rows of the given agents by table, and the counts of their judgments."""
    rows = {name: site.read(name, keys) for name in _PER_AGENT}
    rows["error_clusters"] = with_own_words(site.read, rows["error_clusters"])
    rows["conversations"] = site.read("conversations", keys, columns=agent.LISTED)
    rows["board_history"] = site.read("board_history", keys, columns=_HISTORY)
    answers = pl.concat(site.count(name, keys, columns=agent.ANSWERS) for name in _JUDGMENTS)
    scored = keys.with_columns(status=pl.lit("scored"))
    of_goals = scored.with_columns(metric=pl.lit(GOAL_METRIC))
    rows["goals"] = site.read("conversation_judgments", of_goals, columns=GOALS)
    rows["tool_calls"] = site.count("tool_calls", keys.select("agent_id").unique(), columns=CALLS)
    rows["answers"] = answers.filter(enters_means(answers))
    rows["turn_ratings"] = site.count("turn_judgments", scored, columns=agent.RATINGS)
    return rows


def _agent_pages(
    site: Site,
    paths: Paths,
    boards: Mapping[str, pl.DataFrame],
    agents: pl.DataFrame,
    rows: Mapping[str, pl.DataFrame],
    paged: pl.DataFrame,
) -> Iterator[Page]:
    """Yield the pages of the given agents under every version; `paged` contains their conversations with a page."""
    frames = {**rows, "error_trends": boards["error_trends"], "gates": site.gates}
    own = {name: frame.partition_by("agent_id", as_dict=True) for name, frame in frames.items()}
    for row in agents.to_dicts():
        mine = {name: own[name].get((row["agent_id"],), frame.clear()) for name, frame in frames.items()}
        boards_of = {name: boards[name] for name in ("leaderboard", "log_leaderboard")}
        everything = agent.Frames(**boards_of, **mine)
        has_page = set(paged.filter(agent_id=row["agent_id"])["conversation_id"])
        on_boards = in_version_order(boards["leaderboard"].filter(pl.col("agent_id") == row["agent_id"]))
        for version, rules in site.methodologies.items():
            under = everything.under(version)
            yield from agent.agent_pages(row, version, under, rules, paths, has_page, on_boards)


def _conversation_pages(
    site: Site,
    paths: Paths,
    agents: pl.DataFrame,
    rows: Mapping[str, pl.DataFrame],
    around: Mapping[tuple[str, str], Neighbours],
) -> Iterator[Page]:
    """Yield the pages of the conversations of the given agents."""
    of_agents = {row["agent_id"]: row for row in agents.to_dicts()}
    for material in _materials(site.read, rows["conversations"], rows["transcripts"]):
        key = (material.conversation["agent_id"], material.conversation["conversation_id"])
        of_agent = {"agent": of_agents[key[0]]}
        for path, content in conversation_pages(material, paths, around[key]):
            yield path, "conversation.html", content | of_agent


def _materials(read: Reader, conversations: pl.DataFrame, transcripts: pl.DataFrame) -> Iterator[Material]:
    """Yield the rows of each conversation; the tables are read for many conversations at a time."""
    slots = by_key(transcripts, *_CONVERSATION)
    for chunk in chunks(conversations, CONVERSATIONS_AT_ONCE):
        keys = chunk.select(_CONVERSATION)
        turns = by_key(read("turns", keys), *_CONVERSATION)
        frames = {name: merged_versions(read(name, keys)) for name in _PER_CONVERSATION}
        rows_by_key = {name: by_key(frame, *_CONVERSATION) for name, frame in frames.items()}
        own = decided_alike(read("conversations", keys), frames["conversation_judgments"])
        for row in own.to_dicts():
            key = tuple(row[name] for name in _CONVERSATION)
            rows = {name: only(of_table, *key) for name, of_table in rows_by_key.items()}
            yield Material(row, only(slots, *key), only(turns, *key), **rows)


def _source_page(paths: Paths, row: Row, served: Served) -> Page:
    record, problem = served.record(row)
    content = {
        "conversation": row,
        "file": source_file(row),
        "record": shown(record) if record else None,
        "problem": problem,
    }
    return paths.source(row["agent_id"], row["conversation_id"]), "source.html", content


def _about_page(site: Site, paths: Paths, agents: pl.DataFrame) -> Page:
    of = agents.select("agent_id")
    judge_counts = (site.count(name, of, columns=about.JUDGED_BY, extent="judged_at") for name in _JUDGMENTS)
    content = about.about_page(
        written=site.written,
        judge_counts=pl.concat(judge_counts),
        sessions=site.read("sessions"),
        import_errors=site.read("import_errors"),
        agents=agents,
    )
    return paths.about, "about.html", content
