"""Import foreign formats, one module per format; only `importing` writes the native form.

Each module converts the records of its format, one at a time, to conversations or, if they are invalid, to `Refusal`
objects; `importing` writes both. `auto` imports many files, `detection` detects their formats, and `inputs` finds
them. To add a format, see docs/formats.md.
"""

from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.import_errors import (
    InvalidAgentIdError,
    InvalidSessionIdError,
    NoTranscriptsError,
    SessionExistsError,
    UnknownFormatError,
)
from agent_eval.transcripts.importers.importing import ImportReport, default_session_id, import_file

__all__ = [
    "FORMATS",
    "ImportReport",
    "InvalidAgentIdError",
    "InvalidSessionIdError",
    "NoTranscriptsError",
    "SessionExistsError",
    "UnknownFormatError",
    "default_session_id",
    "import_file",
]
