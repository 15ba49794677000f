"""Read the published rules as data: versions are YAML files that are parsed into frozen models.

Weights, anchors, required tests and penalties are defined here; code must not branch on the version.
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
