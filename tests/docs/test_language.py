"""Plain technical English: retired phrases and words of a private vocabulary do not occur.

`docs/glossary.md` has the project's terms.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RETIRED = (
    "leaderboards that can be defended out",
    "takes in what is new, materialises every stale asset",
    "failed calls told as done",
    "words about the work go to stderr",
    "`--dry-run` tells",
    "Keys stand in the environment",
    "redoes what automation lost once all is quiet",
    "Runs on a store follow one another",
    "is the door",
    "holds what was argued",
    "Take the place of a file that is there",
    "Red or green for CI",
    "were held against what they demand now",
    "and means nothing here",
    "Mend the file",
    "mend the cause",
    "From here on `answer_correctness` counts",
    "What embeds failures",
    "parted by commas",
    "stands among the values",
    "A name that is none is an error",
    "How many words has the reply?",
    "A rule speaks only where it is sure",
    "where it is silent nobody has looked",
    "is of all agents and versions together and stores no table",
    "with the nearest right name",
    "Text of strangers made safe to print",
    "has the quote word for word",
    "tells trouble in one line",
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

HASHED = (
    "docs/metrics.md",
    "agent_eval/judge/cluster_naming.py",
    "agent_eval/judge/prompts/words.py",
    "agent_eval/judge/rules/injection_words.py",
    "agent_eval/methodology/versions/",
    "agent_eval/metrics/builtin/",
)
"""Rubrics, prompts and patterns of rules, and the page made of them: their wording is part of what a judge was asked."""


def texts() -> list[Path]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    pages += [*(ROOT / "docs" / "howto").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md")]
    code = [path for path in (ROOT / "agent_eval").rglob("*") if path.suffix in {".py", ".html", ".yaml"}]
    return sorted([*pages, *code])


@pytest.mark.parametrize("phrase", RETIRED)
def test_a_retired_phrase_occurs_nowhere(phrase: str) -> None:
    said = re.sub(r"\s+", " ", phrase)
    found = [path for path in texts() if said in re.sub(r'\s+"?\s*"?', " ", path.read_text())]
    assert [str(path.relative_to(ROOT)) for path in found] == []


def test_no_text_has_a_word_of_the_private_vocabulary() -> None:
    found = []
    for path in texts():
        name = str(path.relative_to(ROOT))
        if not name.startswith(HASHED):
            lines = enumerate(path.read_text().splitlines(), start=1)
            found += [
                f"{name}:{number}: {word}"
                for number, line in lines
                for word in [*WORDS.findall(line), *NEGATION.findall(line)]
            ]
    assert found == []
