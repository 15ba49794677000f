"""Parse the Markdown of untrusted replies into a tree of known elements, whose texts the templates escape.

The text cannot add HTML, images or attributes. The only attribute taken from it is the address of a link, which must
be an http or https address. `own_tree` parses the Markdown of `report.asset_pages`, in which such texts are escaped.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from agent_eval.report.markdown import PAGES

LONGEST = 10_000  # characters; a longer text is not parsed
MOST_NESTED = 20
DRAWING = "data:image/svg+xml;base64,"
_LOOKS = re.compile(r"\*\*|__|`|^ {0,3}(#{1,6} |[-*+] |\d{1,9}[.)] |>)|\]\(https?:|^\s*\|.*\|", re.MULTILINE)
_TAGS = frozenset(
    ("p", "ul", "ol", "li", "blockquote", "strong", "em", "table", "thead", "tbody", "tr", "th", "td")
)
_OFF = (
    "entity",
    "reference",
    "html_block",
    "html_inline",
)  # syntax that would hide text or change its characters


@dataclass
class MarkdownNode:
    """Represent an element with its children, or a text.

    `tag` is one of `_TAGS`, `pre`, `code`, `a`, `span`, `br`, `hr` or `div`, in own texts also `h2` or `img`; it is empty for
    a text.
    """

    tag: str
    text: str = ""
    href: str = ""
    start: int | None = None  # first number of an ordered list that does not start at 1
    children: list["MarkdownNode"] = field(default_factory=list["MarkdownNode"])


def rendered(text: str) -> Sequence[MarkdownNode]:
    """Return the tree of a text that contains Markdown syntax; empty for other texts and for texts that are too long."""
    if len(text) > LONGEST or not _LOOKS.search(text):
        return ()
    return _tree(_parser().parse(text))


def own_tree(text: str) -> Sequence[MarkdownNode]:
    """Return the tree of a text of `report.asset_pages`, with its headings, drawings and links to pages of the UI."""
    return _tree(_own_parser().parse(text), is_own=True)


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "breaks": True, "maxNesting": MOST_NESTED}
    return MarkdownIt("commonmark", options).enable("table").disable(list(_OFF))


@cache
def _own_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["html_block", "html_inline"])
    addresses = ("https://", "http://", DRAWING, *PAGES)
    vars(parser)["validateLink"] = lambda address: address.startswith(addresses)
    return parser


def _tree(tokens: Sequence[Token], *, is_own: bool = False) -> list[MarkdownNode]:
    root = MarkdownNode("div")
    path = [root]
    for token in tokens:
        if token.hidden:  # the paragraph of a list item without blank lines
            continue
        if token.nesting == 1:
            node = MarkdownNode("h2") if is_own and token.tag == "h2" else _opened(token)
            path[-1].children.append(node)
            path.append(node)
        elif token.nesting == -1:
            closed = path.pop()
            if closed.tag == "a" and not is_own:
                path[-1].children += _address(closed)
                closed.tag = "a" if _is_web(closed.href) else "span"
        elif token.type == "inline":
            path[-1].children += _tree(token.children or (), is_own=is_own)
        elif is_own and token.type == "image" and str(token.attrGet("src")).startswith(DRAWING):
            path[-1].children.append(MarkdownNode("img", token.content, str(token.attrGet("src"))))
        else:
            path[-1].children.append(_leaf(token))
    return root.children


def _opened(token: Token) -> MarkdownNode:
    if token.type == "link_open":
        return MarkdownNode("a", href=str(token.attrGet("href") or ""))
    if token.tag == "ol" and (start := token.attrGet("start")) is not None:
        return MarkdownNode("ol", start=int(start))
    return MarkdownNode(token.tag if token.tag in _TAGS else "div")


def _leaf(token: Token) -> MarkdownNode:
    match token.type:
        case "fence" | "code_block":
            return MarkdownNode("pre", children=[MarkdownNode("", token.content)])
        case "code_inline":
            return MarkdownNode("code", children=[MarkdownNode("", token.content)])
        case "softbreak" | "hardbreak":
            return MarkdownNode("br")
        case "hr":
            return MarkdownNode("hr")
        case "image":
            return MarkdownNode("", f"[image: {token.content}] ({token.attrGet('src')})")
        case _:
            return MarkdownNode("", token.content)


def _address(link: MarkdownNode) -> list[MarkdownNode]:
    """Return the address of a link as a text to show after it; empty if the link's text is the address."""
    words = "".join(child.text for child in link.children)
    return [] if words == link.href else [MarkdownNode("", f" ({link.href})")]


def _is_web(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
