"""Implement `agent-eval explain`: trace a score to its turns, the judge's rationales and the rubric."""

from dataclasses import replace

import polars as pl
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from agent_eval.commands.results.summary import findings_of, print_findings
from agent_eval.commands.terminal.output import print_json
from agent_eval.formats.plain_text import sanitize_line
from agent_eval.metrics.base import NO_FAILURE, SEVERITIES
from agent_eval.project import Project
from agent_eval.report.conclusions import successes
from agent_eval.scores.composite.copies import with_copies_between_agents
from agent_eval.scores.composite.ratings import grouped
from agent_eval.scores.explain import Node, shortened, to_rows
from agent_eval.scores.explain import explain as explained
from agent_eval.scores.explain import explain_turn as explained_turn
from agent_eval.scores.worst_answers import explained as explained_answers
from agent_eval.scores.worst_answers import worst_answers
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

PAGE = 160  # maximum number of lines before wrapping

EDITED = (
    "This derivation uses the weights and anchors of the edited file of methodology {}; "
    "the result may differ from the stored score."
)
_BY_PAIR = (
    "universal_scores", "domain_scores", "rubric_ratings", "transcripts", "turn_judgments", "conversation_judgments",
)  # fmt: skip


def explain(
    project: Project,
    out: Console,
    *,
    agent_id: str,
    version: str,
    score: str,
    as_json: bool,
    is_whole: bool = False,
) -> None:
    """Print the derivation tree of a score: one page, or the whole tree if `is_whole` or `as_json` is true.

    For logs, whose conversations fill no slot, the page has their success and worst findings instead of a composite.

    Raises:
        NotFoundError: If the agent has no rows.
    """
    methodology = project.registry.get(version)
    project.some_agents([agent_id])
    agent = pl.DataFrame({"agent_id": [agent_id]})
    pair = agent.with_columns(methodology_version=pl.lit(version))
    frames = {name: project.store.read(table(name), pair) for name in _BY_PAIR}
    is_log = project.store.read(table("log_leaderboard"), pair).height > 0
    if is_log and score == "composite" and not (as_json or is_whole):
        _print_log(project, out, agent_id, version)
        return
    of_board = project.store.read(table("composite_scores"), pl.DataFrame({"methodology_version": [version]}))
    frames["composite_scores"] = with_copies_between_agents(of_board)
    turns = project.store.read(table("turns"), agent)
    root = explained(agent_id, version, score, **frames, turns=turns, methodology=methodology)
    if version in project.registry.edited():
        root = replace(root, detail=(EDITED.format(version), *root.detail))
    _print(root, out, as_json=as_json, is_whole=is_whole)


def _print_log(project: Project, out: Console, agent_id: str, version: str) -> None:
    """Print what is known of an agent whose conversations fill no slot, and why it has no composite."""
    pair = pl.DataFrame({"agent_id": [agent_id], "methodology_version": [version]})
    out.print(successes(project.store.read(table("quality_summary"), pair)), markup=False)
    print_findings(out, findings_of(project, version, [agent_id]))
    composites = project.store.read(table("composite_scores"), pair)
    missing = [reason for row in composites["missing"].drop_nulls() for reason in row]
    out.print(Text(f"No composite under {version}: its conversations fill no slot.", style="bold"))
    for line in grouped(missing):
        out.print(sanitize_line(f"  missing: {line}"), markup=False)
    more = (
        f"agent-eval explain {agent_id} --metric helpfulness --worst 10 · agent-eval explain {agent_id} --all"
    )
    out.print(f"Next: agent-eval summary --agent {agent_id} · {more}", markup=False)


def explain_metric(
    project: Project,
    out: Console,
    *,
    agent_id: str,
    version: str,
    metric: str,
    n_worst: int,
    as_json: bool,
    is_whole: bool,
) -> None:
    """Print the worst answers about one metric, worst first.

    Raises:
        NotFoundError: If the agent has no rows, or if the metric does not exist.
    """
    project.registry.get(version)
    project.some_agents([agent_id])
    metric_definition = project.metrics.get(metric)
    pair = AgentVersion.of(agent_id=agent_id, methodology_version=version)
    key = pl.DataFrame({"agent_id": [agent_id], "methodology_version": [version], "metric": [metric]})
    rows = project.store.read(
        table("turn_judgments" if metric_definition.grain == "turn" else "conversation_judgments"), key
    )
    labels = sorted(
        (label for label in metric_definition.all_labels if label != NO_FAILURE),
        key=lambda label: -SEVERITIES.index(metric_definition.severity_of(label)),
    )
    worst = worst_answers(rows, labels, n_worst)
    places = worst.select(set(worst.columns) & {"agent_id", "conversation_id", "turn_index"})
    is_of_turns = metric_definition.grain == "turn" and worst.height > 0
    turns = project.store.read(table("turns"), places) if is_of_turns else table("turns").empty()
    n_answers = rows.filter("is_effective", pl.col("status") == "scored").height
    _print(
        explained_answers(pair, metric, worst, n_answers, turns, is_whole=is_whole or as_json),
        out, as_json=as_json, is_whole=True,
    )  # fmt: skip


def explain_turn(
    project: Project, out: Console, *, agent_id: str, version: str, reference: str, as_json: bool
) -> None:
    """Print a turn (`conversation#turn`) or a conversation with the judges' answers and their rationales.

    Raises:
        NotFoundError: If the agent has no rows, or if the agent has no such conversation or turn.
    """
    methodology = project.registry.get(version)
    project.some_agents([agent_id])
    agent = pl.DataFrame({"agent_id": [agent_id]})
    pair = agent.with_columns(methodology_version=pl.lit(version))
    frames = {
        name: project.store.read(table(name), pair)
        for name in ("transcripts", "turn_judgments", "conversation_judgments")
    }
    turns = project.store.read(table("turns"), agent)
    root = explained_turn(agent_id, version, reference, **frames, turns=turns, methodology=methodology)
    _print(root, out, as_json=as_json, is_whole=True)


def _print(root: Node, out: Console, *, as_json: bool, is_whole: bool) -> None:
    if as_json:
        print_json(to_rows(root))
        return
    out.print(_tree(root if is_whole else shortened(root, PAGE)))


def _tree(node: Node) -> Tree:
    tree = Tree(_label(node), guide_style="dim")
    _grow(tree, node, set())
    return tree


def _grow(tree: Tree, node: Node, shown_titles: set[str]) -> None:
    """Add the children of a node to the tree; a conversation that several ratings refer to is shown only once."""
    for child in node.children:
        if child.title in shown_titles:
            tree.add(Text(f"{child.title}: see above", style="dim"))
            continue
        if child.title.startswith("conversation "):
            shown_titles.add(child.title)
        _grow(tree.add(_label(child)), child, shown_titles)


def _label(node: Node) -> Text:
    label = Text(node.title, style="bold" if node.children else "")
    for line in node.detail:
        label.append(f"\n{line}", style="not bold")
    return label
