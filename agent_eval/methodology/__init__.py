"""Methodology: the published rules as data. Versions are YAML files, read into frozen models.

A weight, an anchor, a required test or a penalty belongs here; code that asks which version this is belongs nowhere.
"""

from agent_eval.methodology.diff import Change, diff
from agent_eval.methodology.models import Methodology
from agent_eval.methodology.registry import (
    EditedVersionError,
    MethodologyFileError,
    MethodologyProblem,
    Registry,
    UnknownMethodologyError,
    freeze,
    load,
    version_names,
)

__all__ = [
    "Change",
    "EditedVersionError",
    "Methodology",
    "MethodologyFileError",
    "MethodologyProblem",
    "Registry",
    "UnknownMethodologyError",
    "diff",
    "freeze",
    "load",
    "version_names",
]
