"""Small session folders and files for the tests of this room."""

import gzip
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

USER = {"role": "user", "content": "Where is my order?"}
AGENT = {"role": "assistant", "content": "It has left."}
ANY = "methodology_versions: any\n"


def conversation(conversation_id: str, **fields: object) -> dict[str, object]:
    return {"conversation_id": conversation_id, "messages": [USER, AGENT], **fields}


def lines(values: Iterable[object]) -> bytes:
    return "".join(f"{json.dumps(value)}\n" for value in values).encode()


def zipped(**content: bytes) -> bytes:
    """A zip archive of these files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return stream.getvalue()


def write_session(
    agent_folder: Path, session_id: str, content: bytes | Iterable[object], *, yaml: str = ANY
) -> Path:
    folder = agent_folder / session_id
    folder.mkdir(parents=True)
    (folder / "session.yaml").write_text(yaml)
    (folder / "conversations.jsonl").write_bytes(content if isinstance(content, bytes) else lines(content))
    return folder


def write_json(path: Path, value: object) -> Path:
    content = json.dumps(value).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def snapshot(folder: Path) -> Mapping[str, tuple[bytes, int]]:
    """Bytes and time of change of every file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
