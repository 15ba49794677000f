"""Read the published methodology versions: YAML files that are parsed into frozen models.

The files define weights, anchors, required tests and penalties. Code must not branch on the version.
"""

from agent_eval.methodology.diff import Change, diff
from agent_eval.methodology.models import Methodology
from agent_eval.methodology.registry import (
    EditedVersionError,
    MethodologyFileError,
    MethodologyProblem,
    Registry,
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
    "diff",
    "freeze",
    "load",
    "version_names",
]
