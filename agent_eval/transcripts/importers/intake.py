"""Taking a file in: from a foreign format to a session folder in native form, whole or not at all."""

import filecmp
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import yaml
from pydantic import ValidationError

from agent_eval.errors import AgentEvalError
from agent_eval.transcripts.explain import explain
from agent_eval.transcripts.folders import SLUG_FORM
from agent_eval.transcripts.importers import openai, tau2, tau_bench
from agent_eval.transcripts.importers.base import Importer, Source
from agent_eval.transcripts.jsontext import dumps
from agent_eval.transcripts.models import Conversation, Session, is_slug
from agent_eval.transcripts.records import Refusal
from agent_eval.transcripts.sessions import CONVERSATIONS, ERRORS, FILES, SESSION, read_session_file
from agent_eval.transcripts.streams import BREAKS, Record, json_lines, opened
from agent_eval.transcripts.writing import locked, sync_folder, sync_stream
from agent_eval.transcripts.yamltext import YamlError

FORMATS: Mapping[str, Importer] = {
    openai.NAME: openai.read,
    tau2.NAME: tau2.read,
    tau_bench.NAME: tau_bench.read,
}
_ENDINGS = (".gz", ".jsonl", ".json")
