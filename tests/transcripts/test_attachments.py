"""Attachments: read from every form of content part, stored by reference, exported as they came."""

import base64
import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from agent_eval.transcripts.attachments import Attachment, attachment_of, attachments_of, described
from agent_eval.transcripts.content_hash import turn_hashes
from agent_eval.transcripts.exporters import exported
from agent_eval.transcripts.frames import ConversationRows, conversations_from
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.models import Conversation
from tests.transcripts.making import lines

BYTES = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"IHDR" * 48).decode()
PNG = f"data:image/png;base64,{BYTES}"
URL = "https://example.org/cat.png"
CONTENT: JsonValue = [
    {"type": "text", "text": "Compare\nthese:"},
    {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
    {"type": "image_url", "image_url": {"url": URL}},
    {"type": "text", "text": "and hear"},
    {"type": "input_audio", "input_audio": {"data": BYTES, "format": "mp3"}},
    {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{BYTES}", "filename": "a.pdf"}},
]


@pytest.mark.parametrize(
    ("part", "kind", "media", "reference"),
    [
        ({"type": "image_url", "image_url": {"url": PNG}}, "image", "image/png", PNG),
        ({"type": "input_image", "image_url": URL, "detail": "auto"}, "image", None, URL),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BYTES}}, "image", "image/png", PNG),
        ({"type": "document", "source": {"type": "url", "url": URL}}, "file", None, URL),
        ({"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}}, "image", "image/png", "images/a.png"),
        ({"type": "input_audio", "input_audio": {"data": BYTES, "format": "wav"}}, "audio", "audio/wav", f"data:audio/wav;base64,{BYTES}"),
        ({"type": "input_file", "file_id": "file-1", "filename": "a.pdf"}, "file", None, "file-1"),
        ({"type": "file", "data": BYTES, "mediaType": "image/png"}, "image", "image/png", PNG),
        ({"type": "blob", "mime_type": "image/png", "modality": "image", "content": BYTES}, "image", "image/png", PNG),
        ({"inlineData": {"mimeType": "image/png", "data": BYTES}}, "image", "image/png", PNG),
        ({"type": "image", "image": BYTES, "mediaType": "image/png"}, "image", "image/png", PNG),
        ({"type": "image", "image": "screens/cat"}, "image", None, "screens/cat"),
        ({"image": {"format": "png", "source": {"bytes": BYTES}}}, "image", "image/png", PNG),
        ({"document": {"format": "pdf", "name": "a", "source": {"s3Location": {"uri": "s3://b/a"}}}}, "file", "application/pdf", "s3://b/a"),
        ({"type": "video_url", "video_url": {"url": URL}}, "file", None, URL),
        ({"type": "image_url", "image_url": {"url": None}}, "image", None, ""),
        ({"type": "computer_screenshot", "image_url": PNG}, "image", "image/png", PNG),
        ({"type": "image", "image": BYTES}, "image", "image/png", PNG),
    ],
)  # fmt: skip
def test_each_form_of_part_is_read(part: JsonValue, kind: str, media: str | None, reference: str) -> None:
    found = attachment_of(part)
    assert found is not None
    assert (found.kind, found.media_type, found.reference) == (kind, media, reference)
    assert found.size_bytes == (200 if reference.startswith("data:") else None)


@pytest.mark.parametrize(
    "part",
    [
        *({"type": "text", "text": "x"}, {"type": "image_url"}, {"text": "x"}, "image", {"type": ["image"]}),
        *({"type": "file", "name": "a.py"}, {"image": {"width": 3}}),
    ],
)
def test_what_holds_no_attachment_is_none(part: JsonValue) -> None:
    assert attachment_of(part) is None


def test_parts_that_are_nested_without_end_are_read_to_a_limit() -> None:
    source: JsonValue = {"url": URL}
    blocks: JsonValue = "deep"
    for _ in range(900):
        source = {"source": source}
        blocks = [{"type": "document", "source": {"type": "content", "content": blocks}}]
    assert attachment_of({"type": "image", "source": source}) == Attachment(kind="image", reference="")
    assert [attachment.reference for attachment in attachments_of(blocks)] == [""]


def test_base64_that_is_none_is_not_taken_for_bytes() -> None:
    for text in ("<script>", " " * 200_000 + "<"):  # the second takes hours if it is tried at every space
        assert Attachment(kind="image", reference=f"data:image/png;base64,{text}").base64 is None
    assert Attachment(kind="image", reference=URL).base64 is None


def test_a_size_is_given_in_kb_and_mb() -> None:
    sizes = [None, 12, 34_400, 2_340_000]
    found = [described(Attachment(kind="image", reference="x", size_bytes=n)) for n in sizes]
    assert found == ["image", "image, 1 kB", "image, 34 kB", "image, 2.3 MB"]


def _read(format_name: str, content: bytes, folder: Path) -> Conversation:
    path = folder / "a.jsonl"
    path.write_bytes(content)
    [found] = FORMATS[format_name](Source(path, "s"))
    assert isinstance(found, Conversation), found
    return found


def test_openai_keeps_attachments_in_place_through_export_and_store(tmp_path: Path) -> None:
    record = {"messages": [{"role": "user", "content": CONTENT}, {"role": "assistant", "content": "Two."}]}
    first = _read("openai", lines([record]), tmp_path)
    message = first.messages[0]
    assert message.content == "Compare\nthese:\n[image]\n[image]\nand hear\n[audio]\n[file]"
    assert [a.kind for a in message.attachments or ()] == ["image", "image", "audio", "file"]
    written = exported("openai", first)
    [user, _] = json.loads(json.dumps(written["messages"]))
    assert isinstance(CONTENT, list)
    assert user["content"][2:] == CONTENT[2:]
    again = _read("openai", lines([written]), tmp_path)
    assert again.messages == first.messages
    rows = ConversationRows()
    rows.add("a", "s", None, first)
    [(_, stored)] = conversations_from(rows.conversations.frame(), rows.turns.frame())
    assert stored.messages == first.messages


def test_results_of_tools_have_attachments_in_claude_code_and_responses(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BYTES}}
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a.png"}}
    log = [
        {"type": "user", "uuid": "1", "sessionId": "s", "message": {"role": "user", "content": "Look"}},
        {"type": "assistant", "uuid": "2", "sessionId": "s", "message": {"role": "assistant", "content": [call]}},
        {"type": "user", "uuid": "3", "sessionId": "s", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [image]}]}},
    ]  # fmt: skip
    found = _read("claude-code", lines(log), tmp_path)
    [result] = [m for m in found.messages if m.role == "tool"]
    assert result.content == "[image]"
    assert [a.reference for a in result.attachments or ()] == [PNG]
    asked = {
        "role": "user",
        "content": [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": PNG}],
    }
    items = {"input": [asked], "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A cat."}]}]}  # fmt: skip
    [user, _] = _read("openai-responses", lines([items]), tmp_path).messages
    assert (user.content, [a.reference for a in user.attachments or ()]) == ("See\n[image]", [PNG])


@pytest.mark.parametrize(
    ("message", "content", "references"),
    [
        ({"content": None, "audio": {"id": "a1", "transcript": "It is sent."}}, "It is sent.", []),
        ({"content": None, "audio": {"id": "a1", "transcript": "Sent.", "data": BYTES, "format": "wav"}}, "Sent.\n[audio]", [f"data:audio/wav;base64,{BYTES}"]),
        ({"content": None, "audio": {"id": "a1"}}, "[audio]", ["a1"]),
        ({"content": "See", "images": [BYTES]}, "See\n[image]", [PNG]),
        ({"content": "See", "images": [{"type": "image_url", "image_url": {"url": PNG}}]}, "See\n[image]", [PNG]),
        ({"content": "See", "experimental_attachments": [{"name": "a", "contentType": "image/png", "url": URL}]}, "See\n[image]", [URL]),
        ({"content": "See\n[image]", "attachments": [{"kind": "image", "reference": PNG}]}, "See\n[image]", [PNG]),
        ({"content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Due: 5"}, "title": "Bill"}]}, "Bill\nDue: 5", []),
        ({"content": [{"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "Due: 5"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BYTES}}]}}]}, "Due: 5\n[image]", [PNG]),
        ({"content": [{"type": "document", "data": "Due: 5"}]}, "[file]", ["data:text/plain,Due%3A%205"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("format_name", ["openai", "openai-responses"])
def test_what_messages_hold_in_other_places_is_kept(
    message: dict[str, JsonValue], content: str, references: list[str], format_name: str, tmp_path: Path
) -> None:
    said: list[JsonValue] = [{"role": "user", "content": "Go."}, {"role": "assistant", **message}]
    record: JsonValue = {"messages": said} if format_name == "openai" else {"items": said}
    reply = _read(format_name, lines([record]), tmp_path).messages[1]
    assert reply.content == content
    assert [a.reference for a in reply.attachments or ()] == references


def test_screenshots_and_made_pictures_of_the_responses_api_are_no_text(tmp_path: Path) -> None:
    shot: JsonValue = {"type": "computer_screenshot", "image_url": PNG}
    items: JsonValue = [
        {"type": "message", "role": "user", "content": "Go."},
        {"type": "computer_call", "call_id": "c1", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c1", "output": shot},
        {"type": "image_generation_call", "id": "c2", "result": BYTES},
        {"type": "message", "role": "assistant", "content": "Done."},
    ]
    found = _read("openai-responses", lines([{"items": items}]), tmp_path)
    results = [m for m in found.messages if m.role == "tool"]
    assert [(m.content, [a.reference for a in m.attachments or ()]) for m in results] == [
        ("[image]", [PNG])
    ] * 2


def test_attachments_enter_the_content_hash_and_only_where_there_are_any() -> None:
    def hash_of(reference: str | None) -> str:
        attached = None if reference is None else [{"kind": "image", "reference": reference}]
        message = {"role": "user", "content": "x\n[image]", "attachments": attached}
        talk = Conversation.model_validate({"conversation_id": "c", "messages": [message]})
        return next(turn_hashes(talk, talk.turns()))

    assert len({hash_of(None), hash_of(PNG), hash_of(URL)}) == 3
    assert hash_of(None) == "29b6cb38eadeddea44fb6771d494c7d1"  # of a release without attachments
