"""Read images, audio and files from the content parts of messages, and write them back.

An attachment is stored as its message gives it: a data URL with its bytes, or a URL, a path or a provider's file
id. Nothing is fetched or read from disk. In the message's text, the line `[image]`, `[audio]` or `[file]` marks
its place.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ConfigDict, JsonValue, NonNegativeInt

AttachmentKind = Literal["image", "audio", "file"]

_KINDS: Mapping[str, AttachmentKind] = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio"),
    **dict.fromkeys(("file", "input_file", "document", "video", "blob", "uri"), "file"),
}
"""`type` of a content part → kind."""
_INLINE = ("inlineData", "inline_data", "fileData", "file_data")  # of Gemini's parts, which have no type
_INNER = ("source", "image_url", "audio_url", "input_audio", "file", *_INLINE)
_BYTES = ("data", "file_data", "content")  # base64, unless the text is a URL
_REFERENCES = (
    *("url", "image_url", "audio_url", "file_url", "uri", "fileUri", "file_uri", "path"),
    *(*_BYTES, "image", "audio", "document", "video", "file_id"),
)
_MEDIA = ("media_type", "mime_type", "mimeType", "mediaType", "format")
_NAMES = ("filename", "file_name", "name", "title")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[^;,]*)*),", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]++={0,2}\s*+")  # without backtracking: texts are untrusted
_LEAST_BASE64 = 100  # characters; a shorter text may be a path
_MP3 = frozenset({"audio/mpeg", "audio/mp3"})


class Attachment(BaseModel):
    """Represent an image, a sound or a file of a message."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: AttachmentKind
    reference: str  # a data URL, a URL, a path or a provider's id of the file
    media_type: str | None = None  # None when unknown
    size_bytes: NonNegativeInt | None = None  # None unless the reference is a data URL
    name: str | None = None  # file name, if the source gives one

    @property
    def placeholder(self) -> str:
        """Return the line that marks the attachment in its message's text."""
        return f"[{self.kind}]"

    @property
    def base64(self) -> str | None:
        """Return the bytes in base64; None if the reference is not a valid base64 data URL."""
        found = _DATA_URL.match(self.reference)
        if found is None or not found[2].endswith(";base64"):
            return None
        text = self.reference[found.end() :]
        return text if _BASE64.fullmatch(text) else None


def attachment_of(part: JsonValue) -> Attachment | None:
    """Return the attachment that a content part holds; None if it holds none or does not say where it is.

    Read are parts of OpenAI's chat and Responses APIs, of Anthropic, Gemini, the GenAI conventions, the AI SDK and
    Inspect.
    """
    if not isinstance(part, dict):
        return None
    named = part.get("type")
    kind = _KINDS.get(named) if isinstance(named, str) else None
    inline = next((inner for key in _INLINE if isinstance(inner := part.get(key), dict)), None)
    if kind is None and (inline is None or named is not None):
        return None
    inner = next((inner for key in _INNER if isinstance(inner := part.get(key), dict)), inline or {})
    media = _first_text((inner, part), _MEDIA)
    key = next((key for key in _REFERENCES if _first_text((inner, part), (key,))), None)
    reference = _first_text((inner, part), _REFERENCES)
    if key is None or reference is None:
        return None
    if media is not None and "/" not in media:
        media = f"{kind or 'file'}/{'mpeg' if media == 'mp3' else media}"
    is_long = len(reference) >= _LEAST_BASE64 and _BASE64.fullmatch(reference) is not None
    if "://" not in reference[:20] and not reference.startswith("data:") and (key in _BYTES or is_long):
        reference = f"data:{media or 'application/octet-stream'};base64,{reference}"
    found = _DATA_URL.match(reference)
    media = (found[1] if found else None) or media
    return Attachment(
        kind=_kind_of(kind or "file", media),
        reference=reference,
        media_type=media,
        size_bytes=_size(reference, found),
        name=_first_text((inner, part), _NAMES),
    )


def attachments_of(content: JsonValue) -> list[Attachment]:
    """Return the attachments of a message's content, in order; none if it is a text."""
    parts = content if isinstance(content, list) else ()
    return [found for part in parts if (found := attachment_of(part)) is not None]


def split(content: str | None, attachments: Sequence[Attachment]) -> Iterator[str | Attachment]:
    """Yield the texts of a message and its attachments, each at its place; those without a place come last."""
    waiting, lines = list(attachments), list[str]()
    for line in [] if content is None else content.split("\n"):
        if waiting and line == waiting[0].placeholder:
            if lines:
                yield "\n".join(lines)
            yield waiting.pop(0)
            lines = []
        else:
            lines.append(line)
    if lines:
        yield "\n".join(lines)
    yield from waiting


def chat_part(attachment: Attachment) -> dict[str, JsonValue]:
    """Return an attachment as a content part of OpenAI's chat form, from which `attachment_of` reads it back."""
    named: dict[str, JsonValue] = {} if attachment.name is None else {"filename": attachment.name}
    if attachment.media_type is not None and not attachment.reference.startswith("data:"):
        named["media_type"] = attachment.media_type
    match attachment.kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": attachment.reference, **named}}
        case "audio":
            bare = attachment.base64
            if bare is None or attachment.media_type is None:
                return {"type": "audio_url", "audio_url": {"url": attachment.reference, **named}}
            ending = "mp3" if attachment.media_type in _MP3 else attachment.media_type.removeprefix("audio/")
            return {"type": "input_audio", "input_audio": {"data": bare, "format": ending, **named}}
        case "file":
            key = "file_data" if attachment.reference.startswith("data:") else "file_id"
            return {"type": "file", "file": {key: attachment.reference, **named}}


def described(attachment: Attachment) -> str:
    """Return kind and size of an attachment, as in "image, 34 kB"."""
    n = attachment.size_bytes
    if n is None:
        return attachment.kind
    return (
        f"{attachment.kind}, {n / 1e6:.1f} MB"
        if n >= 1e6
        else f"{attachment.kind}, {max(round(n / 1000), 1)} kB"
    )


def _kind_of(kind: AttachmentKind, media: str | None) -> AttachmentKind:
    """Return the kind of a part; the media type decides for parts that hold any file."""
    family = (media or "").partition("/")[0]
    if kind == "file" and family in ("image", "audio"):
        return "image" if family == "image" else "audio"
    return kind


def _first_text(places: Iterable[Mapping[str, JsonValue]], keys: Iterable[str]) -> str | None:
    held = list(places)
    return next(
        (text for key in keys for place in held if isinstance(text := place.get(key), str) and text), None
    )


def _size(reference: str, data_url: re.Match[str] | None) -> int | None:
    """Return the bytes of a data URL; None for other references."""
    if data_url is None:
        return None
    text = reference[data_url.end() :]
    if data_url[2].endswith(";base64"):
        bare = "".join(text.split())
        return max(len(bare) * 3 // 4 - (len(bare) - len(bare.rstrip("="))), 0)
    return len(unquote_to_bytes(text))
