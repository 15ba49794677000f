"""YAML, read strictly: every scalar is a text, so that `0.40` stays exact and a date stays a date.

Nothing is guessed and nothing is silently dropped: a repeated key, a tag, a merge key or a structure
that grows without bound is an error that names its line. Built from the parser's events, because
composing deeply nested input overflows the C stack.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
MAX_DEPTH = 32
MAX_NODES = 100_000  # with aliases written out; a published version has about 2,500
MAX_LETTERS = 4_000_000  # likewise; a published version has about 40,000
NULLS = ("", "~", "null", "Null", "NULL")

Value = str | None | list["Value"] | dict[str, "Value"]
Location = tuple[str | int, ...]


class StrictYamlError(Exception):
    """A text that is not strict YAML, with the 1-based line where that shows."""

    def __init__(self, reason: str, line: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass
class Document:
    """What a text says, and where it says it. `value` is None for an empty text."""

    value: Value = None
    lines: dict[Location, int] = field(default_factory=dict[Location, int])

    def line_of(self, location: Location) -> int | None:
        """The 1-based line of a location, else of its nearest parent that has one."""
        parents = (location[:n] for n in range(len(location), -1, -1))
        return next((self.lines[parent] for parent in parents if parent in self.lines), None)


def read_strict(text: str) -> Document:
    """Read one YAML document of mappings, lists, texts and nulls.

    Raises:
        StrictYamlError: If the text is no YAML or breaks one of the rules above.
    """
    reader = _Reader(yaml.parse(text, Loader=LOADER))
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise StrictYamlError(f"not YAML: {error.problem or error.context}", line) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise StrictYamlError(f"not YAML: {' '.join(str(error).split())}", None) from error


class _Reader:
    """Builds values from parser events."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self.events = events
        self.lines: dict[Location, int] = {}
        self.anchors: dict[str, tuple[Value, int, int]] = {}  # value, its nodes and its letters
        self.n_nodes = 0
        self.n_letters = 0

    def document(self) -> Document:
        value: Value = None
        n_documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                n_documents += 1
                if n_documents > 1:
                    raise StrictYamlError("holds a second document; write one per file", _line(event))
            elif isinstance(event, yaml.NodeEvent):
                value = self.node(event, ())
        return Document(value, self.lines)

    def node(self, event: yaml.Event, at: Location) -> Value:
        line = _line(event)
        self.lines.setdefault(at, line)
        if len(at) > MAX_DEPTH:
            raise StrictYamlError(f"nested deeper than {MAX_DEPTH} levels", line)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        if not isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            raise StrictYamlError("a value is missing", line)
        if event.tag is not None:
            raise StrictYamlError(f"the tag {event.tag!r} is not supported; write a plain value", line)
        n_nodes, n_letters = self.n_nodes, self.n_letters
        self.grow(1, len(event.value) if isinstance(event, yaml.ScalarEvent) else 0, line)
        value = self.value(event, at)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.n_nodes - n_nodes, self.n_letters - n_letters)
        return value

    def value(self, event: yaml.Event, at: Location) -> Value:
        if isinstance(event, yaml.ScalarEvent):
            is_plain = not event.style
            return None if is_plain and event.value in NULLS else str(event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(at)
        return self.mapping(at)

    def sequence(self, at: Location) -> list[Value]:
        items: list[Value] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, (*at, len(items))))
        return items

    def mapping(self, at: Location) -> dict[str, Value]:
        items: dict[str, Value] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event)
            location = (*at, key)
            if key in items:
                first = self.lines[location]
                raise StrictYamlError(
                    f"the key {_dotted(location)} is given twice (first in line {first}); remove one",
                    _line(event),
                )
            self.lines[location] = _line(event)
            items[key] = self.node(next(self.events), location)
        return items

    def key(self, event: yaml.Event) -> str:
        if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
            raise StrictYamlError("a key must be a plain text", _line(event))
        if event.value == "<<" and not event.style:
            raise StrictYamlError(
                "merge keys (<<) are not supported; use an alias for a whole value", _line(event)
            )
        self.grow(1, len(event.value), _line(event))
        return str(event.value)

    def alias(self, event: yaml.AliasEvent) -> Value:
        if event.anchor not in self.anchors:
            raise StrictYamlError(f"the alias *{event.anchor} has no finished anchor before it", _line(event))
        value, n_nodes, n_letters = self.anchors[event.anchor]
        self.grow(n_nodes, n_letters, _line(event))
        return value

    def grow(self, n_nodes: int, n_letters: int, line: int) -> None:
        self.n_nodes += n_nodes
        self.n_letters += n_letters
        if self.n_nodes > MAX_NODES:
            raise StrictYamlError(f"more than {MAX_NODES:,} values once its aliases are written out", line)
        if self.n_letters > MAX_LETTERS:
            raise StrictYamlError(f"more than {MAX_LETTERS:,} letters once its aliases are written out", line)


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location)


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    return mark.line + 1 if mark else 1
