"""The user's pages: each is reached from docs/README.md, which names those for contributors apart, and they stay short."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
INDEX = (DOCS / "README.md").read_text(encoding="utf-8")
FOR_CONTRIBUTORS = {"architecture.md", "contributing", "decisions"}
MOST_WORDS = 45_000


def pages() -> list[Path]:
    return [page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in FOR_CONTRIBUTORS]


def linked(text: str) -> set[str]:
    return set(re.findall(r"\]\(([^)#:]+?\.md)", text))


def test_every_page_is_reached_from_the_index_in_its_part() -> None:
    for_users, _, for_contributors = INDEX.partition("## For contributors")
    named = {page.relative_to(DOCS).as_posix() for page in pages()} - {"README.md"}
    assert named <= linked(for_users)
    assert not {link for link in linked(for_users) if link.split("/")[0] in FOR_CONTRIBUTORS}
    theirs = {page.relative_to(DOCS).as_posix() for page in (DOCS / "contributing").glob("*.md")}
    assert theirs | {"architecture.md"} <= linked(for_contributors)


def test_the_pages_for_users_stay_short() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages()) <= MOST_WORDS
