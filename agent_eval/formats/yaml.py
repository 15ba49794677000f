"""YAML from users: bounded, with the line of each problem, and nothing dropped in silence.

Depth and aliases are checked on the parser's events first: deep nesting overflows the C stack when it
is composed, and aliases of aliases grow without bound when they are copied.
"""

from pathlib import Path

import yaml

from agent_eval.formats.streams import MEGABYTE

LARGEST = 20 * MEGABYTE
DEEPEST = 32
MOST_VALUES = 500_000  # an agent's entry has about ten, a session.yaml as many
LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class YamlError(Exception):
    """A text that cannot be used, with the 1-based line where that shows; 0 for the whole file."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


def read_text(path: Path) -> str:
    """A file's text with its line ends as they are.

    Raises:
        YamlError: If it is no readable file, larger than 20 MB or not UTF-8.
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


def compose(text: str) -> yaml.Node | None:
    """The nodes of one YAML document; None for an empty one.

    Raises:
        YamlError: If it is no YAML, nested deeper than 32 levels, holds more than 500,000 values, or uses
            aliases.
    """
    try:
        _check_events(text)
        node = yaml.compose(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(
            f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else 0
        ) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise YamlError(f"not YAML: {' '.join(str(error).split())}") from error
    return None if is_null(node) else node


def construct(node: yaml.Node) -> object:
    """The plain value of a node: only YAML's own types.

    Raises:
        YamlError: If a tag names another type, a scalar is no value of its type, a key is repeated or a merge key.
    """
    _check_keys(node)
    try:
        value: object = LOADER("").construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise YamlError(f"not supported: {error.problem}", line_of(node)) from error
    except (LookupError, AttributeError) as error:  # how PyYAML fails on `!!int ""` and `!!timestamp x`
        raise YamlError("a tag (!!) stands before a text that is no such value", line_of(node)) from error
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error).partition(";")[0]  # what follows is about Python's settings
        raise YamlError(f"not a value: {reason}", line_of(node)) from error
    return value


def line_of(node: yaml.Node) -> int:
    """The 1-based line where a node begins."""
    return int(node.start_mark.line) + 1


def is_null(node: yaml.Node | None) -> bool:
    """Whether there is nothing, or a null."""
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null")


def _check_events(text: str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=LOADER)):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if number > MOST_VALUES:
            raise YamlError(f"holds more than {MOST_VALUES:,} values", line)
        if isinstance(event, yaml.AliasEvent):
            raise YamlError("aliases (*name) are not supported; write the value out", line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise YamlError(f"nested deeper than {DEEPEST} levels", line)


def _check_keys(node: yaml.Node) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(item)
    elif isinstance(node, yaml.MappingNode):
        seen: set[object] = set()
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise YamlError("merge keys (<<) are not supported; write the keys out", line_of(key))
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise YamlError(f"the key {key.value[:40]!r} is given twice; remove one", line_of(key))
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            _check_keys(value)
