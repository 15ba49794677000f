"""Plain technical English: retired phrases and words of a private vocabulary do not occur, and names say what they hold.

`docs/glossary.md` has the project's terms.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

RETIRED = (
    "leaderboards that can be defended out",
    "takes in what is new, materialises every stale asset",
    "words about the work go to stderr",
    "Keys stand in the environment",
    "redoes what automation lost once all is quiet",
    "Runs on a store follow one another",
    "is the door",
    "holds what was argued",
    "Take the place of a file that is there",
    "Red or green for CI",
    "were held against what they demand now",
    "and means nothing here",
    "From here on `answer_correctness` counts",
    "What embeds failures",
    "parted by commas",
    "A name that is none is an error",
    "How many words has the reply?",
    "A rule speaks only where it is sure",
    "is of all agents and versions together and stores no table",
    "with the nearest right name",
    "has the quote word for word",
    "at most one such find in twenty is chance",
    "several are an ensemble",
    "while runs go on",
    "in the place of",
    "in what is new",
    "phone and desk",
    "cannot keep the form",
    "Taking the spread near the end",
    "What is not a label is named",
    "that they are of",
    "What holds the transcripts",
)

WORDS = re.compile(r"\b(told|tells|stands|nobody|anew|grave|gravest|mend|strangers)\b", re.IGNORECASE)

NEGATION = re.compile(
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|better\b|worse\b|slower\b|smaller\b|larger\b)\w+",
    re.IGNORECASE,
)
"""'X is no Y', which is written 'X is not a Y'."""

PARTICIPLES = {
    *("asked", "chosen", "counted", "drawn", "found", "given", "held", "judged", "kept"),
    *("known", "made", "named", "said", "seen", "shown", "taken", "told", "wanted"),
}
MOST_PARTICIPLES = 0.005
"""The largest share of variables and parameters whose name is only a participle, which does not say what they hold."""

HASHED = (
    "docs/metrics.md",
    "agent_eval/judge/clusters/naming.py",
    "agent_eval/judge/prompts/words.py",
    "agent_eval/judge/rules/injection_words.py",
    "agent_eval/methodology/versions/",
    "agent_eval/metrics/builtin/",
)
"""Rubrics, prompts and patterns of rules, and the page made of them: their wording is part of what a judge was asked."""


def texts() -> list[Path]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    pages += [*(ROOT / "docs" / "howto").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md")]
    code = [
        path for path in (ROOT / "agent_eval").rglob("*") if path.suffix in {".py", ".html", ".txt", ".yaml"}
    ]
    return sorted([*pages, *code])


def test_a_retired_phrase_occurs_nowhere() -> None:
    found = []
    for path in texts():
        text = re.sub(r'\s+"?\s*"?', " ", path.read_text())
        found += [f"{path.relative_to(ROOT)}: {phrase}" for phrase in RETIRED if phrase in text]
    assert found == []


def test_no_text_has_a_word_of_the_private_vocabulary() -> None:
    found = []
    for path in texts():
        name = str(path.relative_to(ROOT))
        if not name.startswith(HASHED):
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                found += [f"{name}:{number}: {word}" for word in WORDS.findall(line) + NEGATION.findall(line)]
    assert found == []


def test_names_say_what_they_hold() -> None:
    names = Counter(
        name for path in (ROOT / "agent_eval").rglob("*.py") for name in bound_names(path.read_text())
    )
    bare = Counter({name: n for name, n in names.items() if name in PARTICIPLES})
    assert bare.total() < MOST_PARTICIPLES * names.total(), bare.most_common()


def test_a_name_is_counted_where_it_is_bound() -> None:
    code = "def f(given, *kept, x=shown):\n    if (found := given):\n        return [said for said in found]"
    assert sorted(bound_names(code)) == ["found", "given", "kept", "said", "x"]


def bound_names(code: str) -> Iterator[str]:
    """Yield the name of each assignment, loop variable and parameter."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
