"""Plain technical English: retired phrases occur nowhere, and words of a private vocabulary not in what is rewritten.

`docs/glossary.md` has the project's terms. A package leaves `NOT_YET_REWRITTEN` when its texts are plain; it never
comes back.
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
)

WORDS = re.compile(r"\b(told|tells|stands|nobody|anew|grave|gravest|mend|strangers)\b", re.IGNORECASE)

NOT_YET_REWRITTEN = {
    "clusters", "defs", "formats", "gates", "judge", "methodology", "metrics", "report", "scores", "storage",
    "transcripts",
}  # fmt: skip

GENERATED_FROM_METRICS = ROOT / "docs" / "metrics.md"  # rubrics: their hash is part of what a judge was asked


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


def test_what_is_rewritten_has_no_word_of_the_private_vocabulary() -> None:
    found = []
    for path in texts():
        parts = path.relative_to(ROOT).parts
        if (parts[0] == "agent_eval" and parts[1] in NOT_YET_REWRITTEN) or path == GENERATED_FROM_METRICS:
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            found += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in WORDS.findall(line)]
    assert found == []


def test_every_package_that_is_not_rewritten_still_has_such_words() -> None:
    held = {
        package
        for package in NOT_YET_REWRITTEN
        for path in (ROOT / "agent_eval" / package).rglob("*.py")
        if WORDS.search(path.read_text())
    }
    assert held == NOT_YET_REWRITTEN
