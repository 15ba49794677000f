"""Markdown of replies: what is rendered, and that nothing of a hostile text becomes more than text."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.report.html.conversation import neighbours
from agent_eval.report.html.markdown import LONGEST, MarkdownNode, own_tree, rendered
from agent_eval.report.html.render import _environment
from agent_eval.report.html.texts import indented, shown
from agent_eval.report.markdown import markdown_table
from tests.report.pages import Page

ELEMENTS = {
    "div", "p", "ul", "ol", "li", "blockquote", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "pre", "code",
    "a", "span", "br", "hr",
}  # fmt: skip


def page_of(text: str) -> Page:
    """The HTML that the template writes for a reply."""
    macros = _environment().get_template("_parts.html").module
    html = str(macros.text(shown(text, is_markdown=True), "Agent"))  # type: ignore[attr-defined]
    page = Page("x")
    page.feed(html)
    return page


def test_lists_code_tables_and_emphasis_are_rendered() -> None:
    a_table = "| a | b |\n|---|---|\n| 1 | 2 |"
    page = page_of(f"# Plan\n\n3. **book** it\n4. `pay`\n\n{a_table}\n\n```\nx < 1\n```\none\ntwo")
    tags = [tag for tag, _ in page.tags]
    assert {"ol", "strong", "code", "table", "td", "pre", "br"} <= set(tags)
    assert dict(page.tags)["ol"] == {"start": "3"}
    assert not {"h1", "h2"} & set(tags)  # headings of a reply are not headings of the page
    assert page.text == "Plan book it pay a b 1 2 x < 1 one two"


def test_a_text_without_marks_is_shown_as_it_is() -> None:
    assert rendered("Order 1042 is refunded, see https://a.example/*x*.") == ()
    assert rendered("**x**" + "x" * LONGEST) == ()


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "file:///etc/passwd", "//evil.example", "/runs", "https:x", "vbscript:x"],
)  # fmt: skip
def test_only_addresses_of_the_web_become_links(address: str) -> None:
    page = page_of(f"**a** [words]({address}) <{address}>")
    assert page.links == []
    assert "words" in page.text


def test_a_link_shows_where_it_leads() -> None:
    page = page_of("**Pay** at [your bank](https://evil.example/x), <https://a.example>")
    assert page.links == ["https://evil.example/x", "https://a.example"]
    assert page.text == "Pay at your bank (https://evil.example/x), https://a.example"
    assert all(attrs["rel"] == "noopener noreferrer nofollow" for tag, attrs in page.tags if tag == "a")


def test_pictures_are_not_loaded_and_html_and_entities_stay_text() -> None:
    markup = "<img src=x onerror=1> <!-- x --> &#x202e; &lt;b&gt;"
    page = page_of(f"**a** ![p](https://evil.example/p.png) {markup}")
    assert [tag for tag, _ in page.tags if tag not in ("div", "p", "strong")] == []
    assert f"[image: p] (https://evil.example/p.png) {markup}" in page.text


def test_a_reference_does_not_vanish() -> None:
    assert "[x]: https://a.example" in page_of("**a** [x]\n\n[x]: https://a.example").text


@given(st.text("*_`#>-+[]()!|<>&;\\\n\t 1.ahtps:/\"'\u202e", max_size=80))
def test_any_text_becomes_known_elements_and_texts(text: str) -> None:
    page = page_of(f"**a** {text}")
    assert {tag for tag, _ in page.tags} <= ELEMENTS
    for tag, attrs in page.tags:
        assert not {name for name in attrs if name.startswith("on") or name in ("style", "src")}
        if tag == "a":
            assert re.match(r"https?://", str(attrs["href"]))
    assert "\u202e" not in "".join(page.texts)


@pytest.mark.parametrize("sign", [">", "- ", "[", "*a _b ", "![", "`a``", "1. "])
def test_deep_nesting_ends(sign: str) -> None:
    assert page_of(f"**a**\n\n{sign * (LONGEST // len(sign) - 10)}").texts


def test_a_reply_with_a_marked_quote_is_shown_as_it_is() -> None:
    text = shown("**Paid** today", [(1, "Paid")], is_markdown=True)
    assert not text.markdown
    assert [p.mark for p in text.pieces] == [None, 1, None]


def test_json_is_indented_only_if_nothing_of_it_changes() -> None:
    assert indented('{"a": [1, "x y"]}') == '{\n  "a": [\n    1,\n    "x y"\n  ]\n}'
    for text in ('{"a": 1.10}', '{"a": 1, "a": 2}', "[1, 2", "{}x", "plain", "[" * 5000, '{"a": 1e999}'):
        assert indented(text) == text


def test_neighbours_are_those_of_the_agents_list() -> None:
    rows = [("a", "s2", "x"), ("a", "s1", "y"), ("a", "s1", "z"), ("b", "s1", "w")]
    frame = pl.DataFrame(rows, schema=["agent_id", "session_id", "conversation_id"], orient="row")
    found = {key: (n.before, n.after) for key, n in neighbours(frame).items()}
    of_a = {("a", "y"): (None, "z"), ("a", "z"): ("y", "x"), ("a", "x"): ("z", None)}
    assert found == of_a | {("b", "w"): (None, None)}


def test_untrusted_text_in_the_page_of_an_asset_is_text_and_own_links_and_drawings_are_elements() -> None:
    attacks = [
        "<script>alert(1)</script>", "![x](data:image/svg+xml;base64,AA)", "[x](javascript:alert(1))", "[x](/assets/turns)",
        "## x", "a | b", "&lt;img src=x&gt;", "`x", "[x]: http://a.b", "<http://a.b>",
    ]  # fmt: skip
    text = markdown_table(pl.DataFrame({"a": attacks, "_to": ["/runs/1"] * len(attacks)}), links={"a": "_to"})
    nodes = list(below(own_tree(f"## Ratings\n\n![y](data:image/svg+xml;base64,AA)\n\n{text}")))
    tags = Counter(node.tag for node in nodes)
    assert (tags["a"], tags["img"], tags["h2"], tags["td"]) == (len(attacks), 1, 1, len(attacks))
    assert {node.href for node in nodes if node.tag == "a"} == {"/runs/1"}
    words = ["".join(node.text for node in below(cell.children)) for cell in nodes if cell.tag == "td"]
    assert [word.replace("\u2060", "") for word in words] == attacks


def below(nodes: Sequence[MarkdownNode]) -> Iterator[MarkdownNode]:
    for node in nodes:
        yield node
        yield from below(node.children)
