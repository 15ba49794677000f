"""Settings: `agent_eval.toml` in the project, overridden by `AGENT_EVAL_*` in the environment. No secrets here."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from agent_eval.errors import AgentEvalError
from agent_eval.home import Home, find_root

FILE = "agent_eval.toml"


class SettingsError(AgentEvalError):
    """A setting is unknown or has a value that is not allowed."""


class Settings(BaseSettings):
    """What a project may set. Relative paths start at the project's root."""

    model_config = SettingsConfigDict(env_prefix="AGENT_EVAL_", extra="forbid", frozen=True)

    data_dir: Path = Path("data")
    store: Path | None = None  # default: agent_eval.duckdb in the data folder
    max_unscored_share: float = Field(default=0.05, ge=0, le=1)  # above it the coverage gate fails
    answer_threshold: float = Field(default=0.7, ge=0, le=1)  # answer_correctness counts as correct from here
    metric_modules: tuple[str, ...] = ()  # Python modules whose METRICS are asked too
    metrics_off: tuple[str, ...] = ()  # metrics that are not asked

    judge_model: str | None = None  # a litellm name; several, parted by commas, are an ensemble
    judge_mode: Literal["one_call", "per_metric"] = "one_call"  # per_metric: for audits, many times the price
    judge_combine: Literal["median", "mean"] = "median"  # how an ensemble's ratings become one
    judge_temperature: float = Field(default=0.0, ge=0, le=2)
    judge_max_tokens: int = Field(default=4096, ge=64)  # of a reply, thinking included
    judge_timeout_s: float = Field(default=60.0, gt=0)  # of one call
    judge_concurrency: int = Field(default=16, ge=1, le=1000)  # calls at once, of each model
    judge_price_in: float | None = Field(default=None, ge=0)  # US dollars per million tokens
    judge_price_out: float | None = Field(default=None, ge=0)
    max_cost_usd: float | None = Field(default=None, ge=0)  # of one run
    max_calls: int | None = Field(default=None, ge=0)  # of one run

    @property
    def judge_models(self) -> tuple[str, ...]:
        """The judge models by name, each once; none without a model."""
        named = (self.judge_model or "").split(",")
        return tuple(dict.fromkeys(name.strip() for name in named if name.strip()))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def read_settings(root: Path) -> Settings:
    """The settings of the project at `root`.

    Raises:
        SettingsError: If the file is not TOML, or a setting is unknown or out of range; the key is named.
    """

    class _Here(Settings):
        model_config = SettingsConfigDict(toml_file=root / FILE)

    try:
        return _Here()
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        allowed = ", ".join(Settings.model_fields)
        raise SettingsError(
            f"Setting {key!r} in {FILE} or AGENT_EVAL_{key.upper()}: {first['msg']}. Settings: {allowed}."
        ) from error
    except ValueError as error:
        raise SettingsError(f'{root / FILE}: {error}. Write it as TOML, e.g. data_dir = "data".') from error


def unknown_variables() -> list[str]:
    """AGENT_EVAL_* in the environment that are no settings: a slip, or a setting of another release."""
    known = {f"AGENT_EVAL_{name.upper()}" for name in (*Settings.model_fields, "home", "shared_data")}
    return sorted(name for name in os.environ if name.startswith("AGENT_EVAL_") and name not in known)


def home_around(start: Path | None = None) -> Home:
    """The folders of the project around `start`, with the data folder of its settings.

    Raises:
        NoRootError: If there is no project.
        SettingsError: If its settings cannot be read.
    """
    root = find_root(start)
    return Home(root=root, data=root / read_settings(root).data_dir)
