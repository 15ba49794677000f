"""Read YAML from users strictly, and report every problem with its line.

Nesting depth and the numbers of values and characters are limited, including expanded aliases. Repeated keys,
merge keys, multiple documents and tags are rejected, except that typed scalars can have YAML's standard tags. The
caller chooses whether scalars are typed (`5` is a number) or texts (`0.40` and dates stay text), and whether
aliases are allowed. Values are built from the parser's events, because PyYAML's composer overflows the C stack on
deeply nested input.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from agent_eval.formats.streams import MEGABYTE

LARGEST = 20 * MEGABYTE
DEEPEST = 32
MOST_VALUES = (
    100_000  # including keys; an agent's entry has about ten, a published methodology version about 2,500
)
MOST_LETTERS = 4_000_000  # a published methodology version has about 40,000
LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

Scalars = Literal["typed", "text"]
"""Whether scalars become values of YAML's types ('typed') or texts and nulls ('text')."""
Location = tuple[str | int, ...]

_YAML = "tag:yaml.org,2002:"
_NULLS = ("", "~", "null", "Null", "NULL")


class YamlError(Exception):
    """Raised for invalid YAML, with the 1-based line of the problem; 0 for the whole file."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(slots=True)
class YamlScalar:
    """Represent a scalar, which is unquoted if `is_plain`; `line` of every node is 1-based, `column` 0-based."""

    line: int
    text: str
    is_plain: bool
    tag: str | None


@dataclass(slots=True)
class YamlList:
    """Represent a sequence; if `is_flow`, it is in brackets that end before `end_column` of `end_line`."""

    line: int
    column: int
    is_flow: bool
    tag: str | None
    items: list["Node"] = field(default_factory=list["Node"])
    end_line: int = 0
    end_column: int = 0


@dataclass(slots=True)
class YamlMapping:
    """Represent a mapping with its keys as written, including repeated keys."""

    line: int
    tag: str | None
    pairs: list[tuple["Node", "Node"]] = field(default_factory=list[tuple["Node", "Node"]])

    @property
    def keys(self) -> list[str | None]:
        """Return the texts of the keys; None for a key that is not a scalar."""
        return [key.text if isinstance(key, YamlScalar) else None for key, _ in self.pairs]


@dataclass(slots=True)
class YamlAlias:
    """Represent an alias, which refers to an earlier node."""

    line: int
    target: "Node"


Node = YamlScalar | YamlList | YamlMapping | YamlAlias


@dataclass
class Document:
    """Hold the value of a YAML document (None if it is empty) and the line of each location."""

    value: object = None
    lines: dict[Location, int] = field(default_factory=dict[Location, int])

    def line_of(self, location: Location) -> int | None:
        """Return the 1-based line of a location, or of its nearest parent with a known line."""
        parents = (location[:n] for n in range(len(location), -1, -1))
        return next((self.lines[parent] for parent in parents if parent in self.lines), None)


def read_text(path: Path) -> str:
    """Return a file's text with its original line endings.

    Raises:
        YamlError: If the file cannot be read, is larger than 20 MB or is not UTF-8.
    """
    try:
        if not path.is_file():
            raise YamlError("not a file" if path.exists() else "the file is missing")
        if path.stat().st_size > LARGEST:
            raise YamlError(f"larger than {LARGEST // MEGABYTE} MB")
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise YamlError(f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8") from error
    except OSError as error:
        raise YamlError(f"cannot be read: {error.strerror}") from error


def read_document(text: str, scalars: Scalars, *, allow_aliases: bool = False) -> Document:
    """Read a YAML document with the line of each of its values.

    Raises:
        YamlError: If `compose` or `construct` raises it; a repeated key is reported with its parent keys.
    """
    node = compose(text, allow_aliases=allow_aliases)
    if node is None:
        return Document()
    constructor = _Constructor(scalars, lines={})
    return Document(constructor.value(node, ()), constructor.lines or {})


def compose(text: str, *, allow_aliases: bool = False) -> Node | None:
    """Return the nodes of a YAML document, or None if the document is empty or null.

    Raises:
        YamlError: If the text is not YAML, has several documents, is too large, or has aliases that are not
            allowed.
    """
    try:
        node = _Composer(yaml.parse(text, Loader=LOADER), allow_aliases=allow_aliases).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(
            f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else 0
        ) from error
    except yaml.YAMLError as error:  # raised for a character that YAML does not allow
        raise YamlError(f"not YAML: {' '.join(str(error).split())}") from error
    return None if is_null(node) else node


def construct(node: Node, scalars: Scalars) -> object:
    """Return the Python value of a node.

    Raises:
        YamlError: If a key is repeated, is not a scalar or is a merge key, if a tag is not supported, or if a
            scalar is not a value of its type.
    """
    return _Constructor(scalars).value(node, ())


def is_null(node: Node | None) -> bool:
    """Return whether the node is absent or null."""
    return node is None or (
        isinstance(node, YamlScalar)
        and (node.tag == f"{_YAML}null" or (node.tag is None and node.is_plain and node.text in _NULLS))
    )


class _Composer:
    """Build nodes from the parser's events, and enforce the limits."""

    def __init__(self, events: Iterator[yaml.Event], *, allow_aliases: bool) -> None:
        self.events = events
        self.allow_aliases = allow_aliases
        self.anchors: dict[str, tuple[Node, int, int]] = {}  # node, numbers of values and characters
        self.n_values = 0
        self.n_letters = 0
        self.written_out = ""  # added to the message about the size if an alias was expanded

    def document(self) -> Node | None:
        """Return the root node of the only document; None if there is no document."""
        node: Node | None = None
        n_documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                n_documents += 1
                if n_documents > 1:
                    raise YamlError("holds a second document; write one per file", _line(event))
            elif isinstance(event, yaml.NodeEvent):
                node = self.node(event, 0)
        return node

    def node(self, event: yaml.Event, depth: int) -> Node:
        """Return the node that starts with this event, with all its child nodes."""
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        n_values, n_letters = self.n_values, self.n_letters
        if isinstance(event, yaml.ScalarEvent):
            node: Node = YamlScalar(_line(event), str(event.value), not event.style, event.tag)
            self.grow(1, len(event.value), event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.grow(1, 0, event)
            node = self.collection(event, depth + 1)
        else:
            raise YamlError("a value is missing", _line(event))
        if event.anchor is not None:
            self.anchors[event.anchor] = (node, self.n_values - n_values, self.n_letters - n_letters)
        return node

    def collection(self, event: yaml.CollectionStartEvent, depth: int) -> Node:
        """Read the mapping or list that begins with this event.

        Raises:
            YamlError: If it is nested too deeply.
        """
        line = _line(event)
        if depth > DEEPEST:
            raise YamlError(f"nested deeper than {DEEPEST} levels", line)
        if isinstance(event, yaml.MappingStartEvent):
            mapping = YamlMapping(line, event.tag)
            while not isinstance(key := next(self.events), yaml.MappingEndEvent):
                mapping.pairs.append((self.node(key, depth), self.node(next(self.events), depth)))
            return mapping
        items = YamlList(line, _start(event)[1], bool(event.flow_style), event.tag)
        while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
            items.items.append(self.node(item, depth))
        if item.end_mark:
            items.end_line, items.end_column = item.end_mark.line + 1, item.end_mark.column
        return items

    def alias(self, event: yaml.AliasEvent) -> YamlAlias:
        line = _line(event)
        if not self.allow_aliases:
            raise YamlError("aliases (*name) are not supported; write the value out", line)
        if event.anchor not in self.anchors:
            raise YamlError(f"the alias *{event.anchor} has no finished anchor before it", line)
        target, n_values, n_letters = self.anchors[event.anchor]
        self.written_out = " after its aliases are expanded"
        self.grow(n_values, n_letters, event)
        return YamlAlias(line, target)

    def grow(self, n_values: int, n_letters: int, event: yaml.Event) -> None:
        self.n_values += n_values
        self.n_letters += n_letters
        if self.n_values > MOST_VALUES:
            raise YamlError(f"more than {MOST_VALUES:,} values{self.written_out}", _line(event))
        if self.n_letters > MOST_LETTERS:
            raise YamlError(f"more than {MOST_LETTERS:,} characters{self.written_out}", _line(event))


class _Constructor:
    """Build values from nodes, and add the line of every location to `lines` if it is given."""

    def __init__(self, scalars: Scalars, lines: dict[Location, int] | None = None) -> None:
        self.scalars = scalars
        self.lines = lines
        self.referred: dict[int, object] = {}  # values by the id of an alias's target
        self.loader = yaml.SafeLoader("")

    def value(self, node: Node, at: Location) -> object:
        if self.lines is not None:
            self.lines.setdefault(at, node.line)
        if isinstance(node, YamlScalar):
            return self.scalar(node)
        if isinstance(node, YamlAlias):
            return self.alias(node)
        self.refuse_tag(node)
        if isinstance(node, YamlList):
            return [self.value(item, (*at, i)) for i, item in enumerate(node.items)]
        return self.mapping(node, at)

    def mapping(self, node: YamlMapping, at: Location) -> dict[object, object]:
        items: dict[object, object] = {}
        first_lines: dict[str, int] = {}
        for key, value in node.pairs:
            if not isinstance(key, YamlScalar):
                raise YamlError("a key must be a plain text", key.line)
            if key.text == "<<" and key.is_plain:
                raise YamlError("merge keys (<<) are not supported; write the keys out", key.line)
            location = (*at, key.text)
            name = self.scalar(key) if self.scalars == "typed" or key.tag is not None else key.text
            if key.text in first_lines or name in items:
                key_name = repr(key.text[:40]) if self.lines is None else ".".join(map(str, location))
                first = first_lines.get(key.text)
                where = f" (first in line {first})" if first else ""
                raise YamlError(f"the key {key_name} is given twice{where}; remove one", key.line)
            first_lines[key.text] = key.line
            if self.lines is not None:
                self.lines[location] = key.line
            items[name] = self.value(value, location)
        return items

    def alias(self, node: YamlAlias) -> object:
        """Return the value of the alias's target, whose locations keep their lines."""
        key = id(node.target)
        if key not in self.referred:
            self.referred[key] = construct(node.target, self.scalars)
        return self.referred[key]

    def scalar(self, node: YamlScalar) -> object:
        if self.scalars == "text":
            self.refuse_tag(node)
            return None if is_null(node) else node.text
        implicit = (node.is_plain, not node.is_plain)
        tag = node.tag or self.loader.resolve(yaml.ScalarNode, node.text, implicit)  # type: ignore[no-untyped-call]
        try:
            value: object = self.loader.construct_document(yaml.ScalarNode(tag, node.text))
        except yaml.MarkedYAMLError as error:
            raise YamlError(f"not supported: {error.problem}", node.line) from error
        except (LookupError, AttributeError) as error:  # raised by PyYAML for `!!int ""` and `!!timestamp x`
            raise YamlError("the text after a tag (!!) is not a value of that type", node.line) from error
        except (ValueError, TypeError, OverflowError) as error:
            reason = str(error).partition(";")[0]  # the rest of the message concerns Python's settings
            raise YamlError(f"not a value: {reason}", node.line) from error
        return value

    def refuse_tag(self, node: YamlScalar | YamlList | YamlMapping) -> None:
        """Reject any tag; not called for typed scalars, which can have standard tags, as in `!!str 1.10`."""
        if node.tag is not None:
            raise YamlError(f"the tag {node.tag!r} is not supported; write a plain value", node.line)


def _line(event: yaml.Event) -> int:
    return _start(event)[0]


def _start(event: yaml.Event) -> tuple[int, int]:
    """Return the 1-based line and the 0-based column."""
    mark = event.start_mark
    return (mark.line + 1, mark.column) if mark else (1, 0)
