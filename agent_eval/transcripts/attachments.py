"""Read images, audio and files from the content parts of messages, and write them back.

An attachment is stored in the form that its message uses: a data URL with its bytes, a URL, a path or a provider's
file id. Nothing is fetched or read from disk. A line `[image]`, `[audio]` or `[file]` in the message's text marks
the position of the attachment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from pydantic import BaseModel, ConfigDict, JsonValue, NonNegativeInt

AttachmentKind = Literal["image", "audio", "file"]

_KINDS: Mapping[str, AttachmentKind] = {
    **dict.fromkeys(("image", "image_url", "image_file", "input_image", "computer_screenshot"), "image"),
    "image_asset_pointer": "image",
    **dict.fromkeys(("audio", "audio_url", "input_audio", "output_audio", "audio_asset_pointer"), "audio"),
    **dict.fromkeys(("file", "input_file", "document", "media", "blob", "uri"), "file"),
    **dict.fromkeys(("video", "video_url", "input_video"), "file"),
}
"""`type` of a content part → kind."""
_UNTYPED: Mapping[str, AttachmentKind] = {
    **{"image": "image", "audio": "audio", "document": "file", "video": "file"},  # Bedrock
    **dict.fromkeys(("inlineData", "inline_data", "fileData", "file_data"), "file"),  # Gemini
}
"""Key of a content part without a `type` → kind; the key's value is an object."""
_INNER = (
    *("source", "image_url", "image_file", "audio_url", "video_url", "input_audio", "file", "s3Location"),
    *_UNTYPED,
)
_BYTES = ("data", "file_data", "bytes", "content")  # base64, unless the text is a URL
_REFERENCES = (
    *("url", "image_url", "audio_url", "video_url", "file_url", "uri", "fileUri", "file_uri", "path"),
    *(*_BYTES, "image", "audio", "document", "video", "file_id", "file_uuid", "asset_pointer"),
)
_MEDIA = ("media_type", "mime_type", "mimeType", "mediaType", "contentType", "format")
_NAMES = ("filename", "file_name", "name", "title")
_FORMATS = {"mp3": "audio/mpeg", "pdf": "application/pdf", "jpg": "image/jpeg"}
_BEGINNINGS: Mapping[str, str] = {
    **{"iVBORw0KGg": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"},
    "JVBERi0": "application/pdf",
}
"""Prefix of base64 data → media type, for images and files without a media type."""
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[^;,]*)*),", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]++={0,2}\s*+")  # no backtracking, because the input is untrusted
_DEPTH = 4  # levels of nested objects, e.g. Bedrock's document, its source and the source's location
_LEAST_BASE64 = 100  # characters; a shorter text may be a path
_MP3 = frozenset({"audio/mpeg", "audio/mp3"})


class Attachment(BaseModel):
    """Represent an image, a sound or a file in a message."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: AttachmentKind
    reference: str  # a data URL, a URL, a path or a provider's file id
    media_type: str | None = None  # None when unknown
    size_bytes: NonNegativeInt | None = None  # None unless the reference is a data URL
    name: str | None = None  # file name, if the source has one

    @property
    def placeholder(self) -> str:
        """Return the line that marks the attachment in its message's text."""
        return f"[{self.kind}]"

    @property
    def base64(self) -> str | None:
        """Return the bytes in base64, or None if the reference is not a valid base64 data URL."""
        url_match = _DATA_URL.match(self.reference)
        if url_match is None or not url_match[2].endswith(";base64"):
            return None
        text = self.reference[url_match.end() :]
        return text if _BASE64.fullmatch(text) else None


def attachment_of(part: JsonValue) -> Attachment | None:
    """Return the attachment in a content part, or None if the part has no attachment.

    Supports the content parts of OpenAI's chat and Responses APIs, Anthropic, Bedrock, Gemini, the GenAI conventions,
    the AI SDK and Inspect. The reference is empty if the part does not contain it (e.g. a log that omits the URL).
    """
    if not isinstance(part, dict):
        return None
    label = part.get("type")
    untyped = None if label is not None else next((key for key in _UNTYPED if _holds_data(part, key)), None)
    kind = _UNTYPED[untyped] if untyped else _KINDS.get(label) if isinstance(label, str) else None
    if kind is None:
        return None
    places = [*_places(part)][::-1]
    media = _first_text(places, _MEDIA)
    key = next((key for key in _REFERENCES if _first_text(places, (key,))), "")
    reference = _first_text(places, _REFERENCES) or ""
    if not reference and (untyped or {*_REFERENCES, *_INNER}.isdisjoint(part)):
        return None
    if media is not None and "/" not in media:
        family = "video" if "video" in (untyped, label) else "image" if kind == "image" else kind
        media = _FORMATS.get(media.lower(), f"{family}/{media.lower()}")
    return _attachment(kind, reference, media, _first_text(places, _NAMES), is_data=key in _BYTES)


def _holds_data(part: Mapping[str, JsonValue], key: str) -> bool:
    """Return whether a part without a type has an attachment under `key`, as in Bedrock and Gemini."""
    inner = part.get(key)
    return isinstance(inner, dict) and (
        "source" in inner or key not in ("image", "audio", "document", "video")
    )


def _places(part: Mapping[str, JsonValue]) -> Iterator[Mapping[str, JsonValue]]:
    """Yield a part and the nested objects that may hold its data, outermost first.

    Parts are untrusted, so the depth is limited.
    """
    place: Mapping[str, JsonValue] | None = part
    for _ in range(_DEPTH):
        if place is None:
            return
        yield place
        current = place
        place = next((inner for key in _INNER if isinstance(inner := current.get(key), dict)), None)


def _attachment(
    kind: AttachmentKind, reference: str, media: str | None, name: str | None, *, is_data: bool
) -> Attachment:
    """Return an attachment; base64 data becomes a data URL.

    If `is_data` is true, any other string that is not a URL also becomes a data URL.
    """
    is_base64 = _BASE64.fullmatch(reference) is not None
    is_long = len(reference) >= _LEAST_BASE64 and is_base64
    if "://" not in reference[:20] and not reference.startswith("data:") and (is_data or is_long):
        if is_base64:
            bare = reference[:20]
            media = media or next((m for start, m in _BEGINNINGS.items() if bare.startswith(start)), None)
            reference = f"data:{media or 'application/octet-stream'};base64,{reference}"
        elif reference:
            reference = f"data:{media or 'text/plain'},{quote(reference)}"
    url_match = _DATA_URL.match(reference)
    media = (url_match[1] if url_match else None) or media
    size = _size(reference, url_match)
    return Attachment(
        kind=_kind_of(kind, media), reference=reference, media_type=media, size_bytes=size, name=name
    )


def flattened(content: JsonValue, depth: int = 4) -> list[JsonValue]:
    """Return the parts of a message's content as a flat list.

    A text document becomes a text part, and the blocks of a document replace the document, for up to `depth` levels
    of nested documents. A recording with a transcript becomes the transcript, followed by the recording if the part
    contains its bytes, and a file of which the source extracted the text becomes its name and this text.
    """
    flat_parts: list[JsonValue] = []
    for part in content if isinstance(content, list) else [content]:
        fields: Mapping[str, JsonValue] = part if isinstance(part, dict) else {}
        source = fields.get("source")
        of: Mapping[str, JsonValue] = source if isinstance(source, dict) else {}
        text = of.get("data") if of.get("type") == "text" else fields.get("transcript")
        text = fields.get("extracted_content") or text
        title = fields.get("title") or (fields.get("file_name") if text else None)
        titled: list[JsonValue] = [title] if isinstance(title, str) and title else []
        if depth and fields.get("type") == "document" and of.get("type") == "content":
            flat_parts += [*titled, *flattened(of.get("content"), depth - 1)]
        elif isinstance(text, str) and fields.get("type") in _KINDS:
            flat_parts += [*titled, text]
            recording = None if of else attachment_of(part)
            flat_parts += [part] if recording is not None and recording.size_bytes else []
        else:
            flat_parts.append(part)
    return flat_parts


def attachments_of(content: JsonValue) -> list[Attachment]:
    """Return the attachments of a message's content, in order; the list is empty if the content is a string."""
    parts = flattened(content) if isinstance(content, list | dict) else []
    return [attachment for part in parts if (attachment := attachment_of(part)) is not None]


_BESIDE = frozenset({"images", "experimental_attachments", "attachments", "audio"})


def beside_content(message: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return content parts for the attachments that a message stores outside its content.

    Supports `images` (Ollama, OpenRouter), `experimental_attachments` (AI SDK), file ids in `attachments` (OpenAI
    Assistants) and `audio` (OpenAI replies, in which the transcript is the text of the reply).
    """
    if _BESIDE.isdisjoint(message):
        return []
    images = message.get("images")
    texts = [image for image in images if isinstance(image, str)] if isinstance(images, list) else []
    parts: list[JsonValue] = [{"type": "image", "image": text} for text in texts]
    parts += [{"type": "image", **image} for image in _objects(message, "images")]
    files = (v for key in ("experimental_attachments", "attachments") for v in _objects(message, key))
    parts += [{**value, "type": "file"} for value in files if "kind" not in value]
    if isinstance(audio := message.get("audio"), dict):
        parts.append({"file_id": audio.get("id"), **audio, "type": "audio"})
    return parts


def native_attachments(message: Mapping[str, JsonValue]) -> list[dict[str, object]]:
    """Return the entries of a message's `attachments` that are in the native form, which has a `kind`."""
    return [{**value} for value in _objects(message, "attachments") if "kind" in value]


def _objects(message: Mapping[str, JsonValue], key: str) -> list[dict[str, JsonValue]]:
    """Return the objects in the list under a key; empty if the value is not a list."""
    values = message.get(key)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def split(content: str | None, attachments: Sequence[Attachment]) -> Iterator[str | Attachment]:
    """Yield the text blocks and attachments of a message in order; attachments without a placeholder come last."""
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
    """Return an attachment as a content part in OpenAI's chat form, which `attachment_of` can read back."""
    name_and_type: dict[str, JsonValue] = {} if attachment.name is None else {"filename": attachment.name}
    if attachment.media_type is not None and not attachment.reference.startswith("data:"):
        name_and_type["media_type"] = attachment.media_type
    match attachment.kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": attachment.reference, **name_and_type}}
        case "audio":
            bare = attachment.base64
            if bare is None or attachment.media_type is None:
                return {"type": "audio_url", "audio_url": {"url": attachment.reference, **name_and_type}}
            ending = "mp3" if attachment.media_type in _MP3 else attachment.media_type.removeprefix("audio/")
            return {"type": "input_audio", "input_audio": {"data": bare, "format": ending, **name_and_type}}
        case "file":
            key = "file_data" if attachment.reference.startswith("data:") else "file_id"
            return {"type": "file", "file": {key: attachment.reference, **name_and_type}}


def described(attachment: Attachment) -> str:
    """Return the kind and the size of an attachment, e.g. "image, 34 kB"."""
    n = attachment.size_bytes
    if n is None:
        return attachment.kind
    return (
        f"{attachment.kind}, {n / 1e6:.1f} MB"
        if n >= 1e6
        else f"{attachment.kind}, {max(round(n / 1000), 1)} kB"
    )


def _kind_of(kind: AttachmentKind, media: str | None) -> AttachmentKind:
    """Return the kind of a part; for parts that can hold any file, the media type decides."""
    family = (media or "").partition("/")[0]
    if kind == "file" and family in ("image", "audio"):
        return "image" if family == "image" else "audio"
    return kind


def _first_text(places: Iterable[Mapping[str, JsonValue]], keys: Iterable[str]) -> str | None:
    objects = list(places)
    return next(
        (text for key in keys for place in objects if isinstance(text := place.get(key), str) and text), None
    )


def _size(reference: str, data_url: re.Match[str] | None) -> int | None:
    """Return the size of a data URL's content in bytes, or None for other references."""
    if data_url is None:
        return None
    text = reference[data_url.end() :]
    if data_url[2].endswith(";base64"):
        bare = "".join(text.split())
        return max(len(bare) * 3 // 4 - (len(bare) - len(bare.rstrip("="))), 0)
    return len(unquote_to_bytes(text))
