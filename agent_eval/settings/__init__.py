"""Read the settings, the specification of the gates, and the location of a project.

Values only: what a setting does belongs where it is used.
"""

from agent_eval.settings.gate_spec import GateSpec
from agent_eval.settings.home import Home, NoRootError, find_root
from agent_eval.settings.settings import (
    FILE,
    Settings,
    SettingsError,
    home_around,
    read_gates,
    read_settings,
    unknown_variables,
)

__all__ = [
    "FILE",
    "GateSpec",
    "Home",
    "NoRootError",
    "Settings",
    "SettingsError",
    "find_root",
    "home_around",
    "read_gates",
    "read_settings",
    "unknown_variables",
]
