"""Read the settings, the gate configuration and the location of a project.

This package only reads and validates values; the packages that use a setting implement its effect.
"""

from agent_eval.settings.budget import BudgetSettings
from agent_eval.settings.gate_spec import GateSpec
from agent_eval.settings.home import Home, NoRootError, find_root
from agent_eval.settings.settings import (
    FILE,
    Settings,
    SettingsError,
    home_around,
    misplaced_caps,
    read_gates,
    read_settings,
    unknown_variables,
)

__all__ = [
    "FILE",
    "BudgetSettings",
    "GateSpec",
    "Home",
    "NoRootError",
    "Settings",
    "SettingsError",
    "find_root",
    "home_around",
    "misplaced_caps",
    "read_gates",
    "read_settings",
    "unknown_variables",
]
