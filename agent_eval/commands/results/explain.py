"""`agent-eval explain`: from a number to the turns, the judge's words and the rubric."""

from dataclasses import replace

import polars as pl
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from agent_eval.commands.terminal.output import print_json
from agent_eval.project import Project
from agent_eval.scores.explain import Node, to_rows
from agent_eval.scores.explain import explain as explained
from agent_eval.tables import table

EDITED = (
    "This derivation uses the weights and anchors of the edited file of methodology {}; "
    "it may not give the stored score."
)
_BY_PAIR = (
    "composite_scores", "universal_scores", "domain_scores", "rubric_ratings", "transcripts", "turn_judgments", "conversation_judgments",
)  # fmt: skip


def explain(
    project: Project, out: Console, *, agent_id: str, version: str, score: str, as_json: bool
) -> None:
    """Print the tree of one score.

    Raises:
        UnknownAgentError: If the agent has no rows.
    """
    methodology = project.registry.get(version)
    project.some_agents([agent_id])
    agent = pl.DataFrame({"agent_id": [agent_id]})
    pair = agent.with_columns(methodology_version=pl.lit(version))
    frames = {name: project.store.read(table(name), pair) for name in _BY_PAIR}
    turns = project.store.read(table("turns"), agent)
    root = explained(agent_id, version, score, **frames, turns=turns, methodology=methodology)
    if version in project.registry.edited():
        root = replace(root, detail=(EDITED.format(version), *root.detail))
    print_json(to_rows(root)) if as_json else out.print(_tree(root))


def _tree(node: Node) -> Tree:
    tree = Tree(_label(node), guide_style="dim")
    _grow(tree, node, set())
    return tree


def _grow(tree: Tree, node: Node, told: set[str]) -> None:
    """Add the children; a conversation that several ratings rest on is told once."""
    for child in node.children:
        if child.title in told:
            tree.add(Text(f"{child.title}: see above", style="dim"))
            continue
        if child.title.startswith("conversation "):
            told.add(child.title)
        _grow(tree.add(_label(child)), child, told)


def _label(node: Node) -> Text:
    label = Text(node.title, style="bold" if node.children else "")
    for line in node.detail:
        label.append(f"\n{line}", style="not bold")
    return label
