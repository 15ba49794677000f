"""Import many files, detecting the format of each file from its content."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_eval.errors import AgentEvalError
from agent_eval.formats.files import is_slug
from agent_eval.formats.zip_members import ZipMember
from agent_eval.transcripts.importers.agent_ids import AgentIds
from agent_eval.transcripts.importers.base import PASSED_ON, Source, fault_of
from agent_eval.transcripts.importers.detection import detect
from agent_eval.transcripts.importers.import_errors import invalid_agent_id
from agent_eval.transcripts.importers.importing import ImportReport, import_file, kept_session_id
from agent_eval.transcripts.importers.inputs import InputFile, session_ids
from agent_eval.transcripts.importers.slots import Slots

AUTO = "auto"
"""Format name that requests detection from the file's content."""


@dataclass(frozen=True)
class FileReport:
    """Hold the result of importing one file. If it failed, `report` is None and `reason` describes the cause."""

    name: str
    format_name: str | None
    report: ImportReport | None
    reason: str = ""
    is_recognised: bool = False  # its format was detected from its content
    is_skipped: bool = False  # in a folder or archive, and neither JSON nor compressed


def import_files(
    format_name: str,
    files: Sequence[InputFile],
    *,
    sessions_folder: Path,
    agent_id: str,
    session_id: str | None = None,
    methodology_versions: tuple[str, ...] | None = None,
    task_set: str | None = None,
    slots: Slots | None = None,
) -> Iterator[FileReport]:
    """Import each file into a separate session, and yield its report as soon as it is imported.

    A file that cannot be imported is reported, and the others are imported.

    Args:
        format_name: A key of `catalog.FORMATS`, or `auto` to detect the format of each file.
        files: The files.
        sessions_folder: data/sessions.
        agent_id: The agent that the transcripts belong to.
        session_id: The session, if there is only one file.
        methodology_versions: The versions that the sessions were run for; None: any version.
        task_set: As for `import_file`.
        slots: Slots and disclosures by task.

    Raises:
        InputError: If the agent's id is invalid.
    """
    if not is_slug(agent_id):
        raise invalid_agent_id(agent_id)
    ids = AgentIds(sessions_folder / agent_id)
    is_named = session_id is not None and len(files) == 1
    found_names = [
        kept_session_id(sessions_folder / agent_id, n, f.file)
        for n, f in zip(session_ids(files), files, strict=True)
    ]
    names = [session_id] if is_named and session_id is not None else found_names

    def imported(file: InputFile, path: Path | ZipMember, session: str) -> FileReport:
        name = None if format_name == AUTO else format_name
        try:
            detection = None
            if format_name == AUTO or not file.is_named:
                detection = detect(Source(path, session, file.file))
                name = name or detection.format_name
            is_skipped = detection is not None and not detection.may_hold_transcripts and not file.is_named
            if detection is not None and (name is None or is_skipped):
                return FileReport(file.name, None, None, detection.reason, is_skipped=is_skipped)
            report = import_file(
                str(name),
                path,
                sessions_folder=sessions_folder,
                agent_id=agent_id,
                session_id=session,
                methodology_versions=methodology_versions,
                task_set=task_set,
                name=file.file,
                ids=ids,
                slots=slots,
                may_join=session_id is None,
            )
        except AgentEvalError as error:
            return FileReport(file.name, name, None, str(error))
        except PASSED_ON:
            raise
        except Exception as error:  # last resort: the files after this one are still imported
            return FileReport(file.name, name, None, f"{file.name}: {fault_of(name or AUTO, error)}.")
        return FileReport(file.name, name, report, is_recognised=format_name == AUTO)

    for file, session in zip(files, names, strict=True):
        if file.path is None:
            yield FileReport(file.name, None, None, file.reason)
        else:
            yield imported(file, file.path, session)
