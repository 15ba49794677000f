"""Hostile values, texts and bytes, and valid files made hostile."""

import codecs
import copy
import gzip
import json
from typing import Any

from hypothesis import strategies as st

TOKENS = (
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\n", b"\x1b[31m", b"\xc2\x9b31m", "\u202eevil".encode(), b"\\ud800",
    b"NaN", b"-Infinity", b"1e400", b"9" * 5000, b"[" * 2000, b'{"a":' * 300, b'"', b"'", b"\\", b"|", b",", b":", b"]", b"}", b"../../canary",
    b"*a", b"&a ", b"<<: {a: b}", b'!!int ""', b"!!python/object:os.system x", b"!!timestamp x", b"- ", b"? [a]\n: b", b"---\n", b"%YAML 9.9\n",
    b"'; DROP TABLE turns; --", b"<script>alert(1)</script>", b"=1+1", b"null", b"true", b"\xed\xa0\x80", "\u2028".encode(), b"\x1f\x8b\x08",
)  # fmt: skip

nasty_texts = st.sampled_from(
    [
        "", " ", "\x00", "\x1b[31mred\x1b[0m", "\x9b31m", "\u202eevil\u2066", "a\nb", "\ud800", "\ufeff", "\u2028", "x" * 600, "é" * 300,
        "'; DROP TABLE turns; --", "<img src=x onerror=alert(1)>", "|a|b|\n# head", "[x](javascript:alert(1))", "[red]markup[/red]", "../../canary",
        "a|b", "=cmd()", "1.3.0", "any", "D1", "user", "assistant", "nan", '{"a":1,"a":2}', "[" * 200, "NaN",
    ]
)  # fmt: skip
texts = nasty_texts | st.text(max_size=30)
numbers = st.sampled_from([0, -1, 2**31, 2**63, 2**70, 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf")])
scalars = st.none() | st.booleans() | numbers | st.integers() | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def changed_json(draw: st.DrawFn, seed: Any) -> Any:
    """The value with one to three of its parts replaced, removed, added or nested."""
    value = copy.deepcopy(seed)
    for _ in range(draw(st.integers(1, 3))):
        holder: Any = [value]
        key: Any = 0
        node = value
        while isinstance(node, dict | list) and node and draw(st.integers(0, 3)):
            holder, key = (
                node,
                draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node)))),
            )
            node = holder[key]
        what = draw(st.sampled_from(["replace", "replace", "remove", "add", "nest"]))
        if what == "replace":
            holder[key] = draw(values)
        elif what == "remove":
            del holder[key]
        elif what == "add" and isinstance(node, dict):
            node[draw(texts)] = draw(values)
        else:
            holder[key] = [node] * draw(st.integers(1, 3))
        if not holder:
            break
    return value


def json_bytes(value: Any) -> bytes:
    """As a careless program writes it: NaN, lone surrogates and all."""
    return json.dumps(value).encode()


@st.composite
def changed_bytes(draw: st.DrawFn, seed: bytes) -> bytes:
    """The bytes, none to four times flipped, cut, repeated or with a token put in; perhaps encoded otherwise."""
    data = seed
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        to = min(len(data), at + draw(st.integers(1, 40)))
        what = draw(st.sampled_from(["flip", "cut", "drop", "repeat", "put", "put", "replace"]))
        if what == "flip" and data:
            data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
        elif what == "cut":
            data = data[:at]
        elif what == "drop":
            data = data[:at] + data[to:]
        elif what == "repeat":
            data = data[:to] + data[at:]
        else:
            data = data[:at] + draw(st.sampled_from(TOKENS)) + data[at if what == "put" else to :]
    return _encoded(
        draw(st.sampled_from(["as it is"] * 8 + ["gzip", "bom", "crlf", "utf-16", "torn gzip"])), data
    )


def _encoded(how: str, data: bytes) -> bytes:
    match how:
        case "gzip":
            return gzip.compress(data, 1)
        case "torn gzip":
            return gzip.compress(data, 1)[:-12]
        case "bom":
            return b"\xef\xbb\xbf" + data
        case "crlf":
            return data.replace(b"\n", b"\r\n")
        case "utf-16":
            return data.decode("utf-8", "replace").encode("utf-16")
    return data


def lines_of(content: bytes) -> list[bytes]:
    """The lines of a file that are not blank, as the product reads them: UTF-16 with a mark, else UTF-8."""
    utf16, utf32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
    if content.startswith(utf16) and not content.startswith(utf32):
        content = content.decode("utf-16", "replace").encode()
    else:
        content = content.removeprefix(codecs.BOM_UTF8)
    return [line for line in content.split(b"\n") if line.strip()]
