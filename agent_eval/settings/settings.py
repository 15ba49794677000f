"""Define the settings, which are read from agent_eval.toml and the environment variables `AGENT_EVAL_*`.

Environment variables override the file. API keys are not settings.
"""

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from agent_eval.errors import ConfigurationError
from agent_eval.settings.budget import BudgetSettings, in_table
from agent_eval.settings.gate_spec import (
    Baseline,
    CalibrationLimits,
    DriftLimits,
    GateSpec,
    Layer,
    RegressionLimits,
)
from agent_eval.settings.home import Home, find_root
from agent_eval.settings.inbox import InboxSetting
from agent_eval.settings.lake import LakeSettings, StoreSetting

FILE = "agent_eval.toml"
TOOL_ASPECTS = ("selection", "parameters", "sequence", "utilisation")
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ErrorPattern = Annotated[str, Field(min_length=1, max_length=1_000)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LARGEST = 100_000  # bytes
_FIX = 'Write it as TOML, e.g. data_dir = "data".'


class SettingsError(ConfigurationError):
    """Raised when a setting is unknown or its value is invalid.

    Fix: Correct agent_eval.toml or the environment variable.
    """


class Settings(BaseSettings):
    """Define the settings of a project; relative paths are relative to the project's root."""

    model_config = SettingsConfigDict(
        env_prefix="AGENT_EVAL_", env_nested_delimiter="__", extra="forbid", frozen=True, defer_build=True
    )

    data_dir: Path = Field(default=Path("data"), description="Folder for sessions, ratings and the store.")
    store: StoreSetting = Field(
        default=None,
        description="Path of the DuckDB file. Default: `agent_eval.duckdb` in the data folder. A table [store] selects a "
        "DuckLake, which several workers can share; see docs/howto/use-several-workers.md.",
    )
    ui_allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Additional host names, without port, under which `agent-eval ui` can be reached.",
    )
    nightly_cron: str = Field(
        default="0 3 * * *",
        description="Cron expression of the schedule `nightly`, in the server's time zone.",
    )
    inbox: tuple[InboxSetting, ...] = Field(
        default=(),
        description="Files that arrive by themselves. Each table [[inbox]] has `glob`, `agent` and `format` (default `auto`); "
        "the sensor `import_inbox` imports each complete file.",
    )
    max_conversations_per_run: int | None = Field(
        default=4000,
        ge=1,
        description="Maximum number of conversations in one Dagster run, counted once per methodology version, to limit "
        "memory. An agent under one version stays in one run and is judged in parts.",
    )
    keep_runs_days: int = Field(
        default=90,
        ge=1,
        description="Days after which a finished Dagster run is deleted with its events, unless an asset partition refers to it.",
    )
    failure_hook: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:\w+$",
        description="Function, as `module:function`, that is called with each failed run.",
    )
    notify: str | None = Field(
        default=None,
        pattern=r"^([\w.]+:\w+|https?://\S+)$",
        description="Where changes are reported after a run: a gate turns red, an issue comes back, a rank changes, a cap is reached, or a judge does "
        "not answer. A function, as `module:function`, that is called with a dict per change, or a webhook URL that accepts "
        'Slack\'s `{"text": …}`. Messages contain no text of transcripts.',
    )
    report_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s()<>\[\]|\\`\"']+$",
        description="URL at which `data/report` is served; boards in the Dagster UI link to it. Default: the report that `agent-eval ui` serves at `/report/`.",
    )
    max_report_conversations: int | None = Field(
        default=1000,
        ge=1,
        description="Maximum number of conversation pages per agent in the written report. Conversations that fill a slot or "
        "have failures come first. The pages served by `agent-eval ui` are not limited.",
    )
    max_unscored_share: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Maximum share of unscored questions to judge models; above this share, the gate `coverage` fails.",
    )
    cluster_embedding: Literal["wordllama", "minilm"] = Field(
        default="wordllama",
        description="Embedding model used to cluster failures; `minilm` needs `pip install 'dagster-agent-eval[minilm]'`.",
    )
    clusters: Literal["people", "model"] = Field(
        default="people",
        description="Who merges error clusters with the same cause: `people` accept what a judge model proposes (`agent-eval errors --proposals`); with `model`, proposals are applied and recorded.",
    )
    taxonomy: str = Field(
        default="labels",
        description="Categories above the error clusters: `labels` (the failure labels), `mast`, `trail`, `agentrx`, or the path of a YAML file relative to the project; see docs/clusters.md.",
    )
    gates: GateSpec = Field(
        default=GateSpec(), description="Conditions that `agent-eval gate` evaluates; see docs/gates.md."
    )
    audit_cron: str = Field(
        default="0 4 * * 0",
        description="Cron expression of the schedule `weekly_audit`, in the server's time zone.",
    )
    benchmark_cron: str = Field(
        default="0 5 * * 0",
        description="Cron expression of the schedule `weekly_benchmark`, in the server's time zone.",
    )
    audit_size: int = Field(
        default=50,
        ge=1,
        le=100_000,
        description="Number of turns that an audit asks the judge models about again.",
    )
    answer_threshold: float = Field(
        default=0.7, ge=0, le=1, description="Minimum `answer_correctness` that counts as a correct answer."
    )
    rater_rule: Literal["adjudicator", "median", "latest"] = Field(
        default="adjudicator",
        description="Rating that counts if people disagree and no adjudicator has decided: no rating (`adjudicator`), "
        "the median or the lower of the two middle ratings (`median`), or the latest (`latest`).",
    )
    tool_threshold: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Minimum `overall` of `tool_correctness` that counts as correct tool use.",
    )
    tool_weights: dict[str, Weight] = Field(
        default=dict.fromkeys(TOOL_ASPECTS, 0.25),
        description="Weights of selection, parameters, sequence and utilisation in `overall`, normalised to 1. "
        "The weight of an omitted aspect is 0.",
    )
    tool_profile: Literal["standard", "fair-forge"] = Field(
        default="standard",
        description="Definition of the aspects of `tool_correctness`: `standard`, or `fair-forge` for the figures of that "
        "tool; see docs/howto/from-fair-forge.md.",
    )
    interval: Literal["auto", "t", "bounded"] = Field(
        default="auto",
        description="Method of a composite's interval over sessions: `t`; `bounded`, which holds for any distribution of "
        "sessions and is wide; or `auto`, which is `bounded` if a session shows a breakdown, else `t`. Unless it is `t`, a "
        "difference that unseen sessions could cause gives no verdict.",
    )
    beta_prior: tuple[Positive, Positive] = Field(
        default=(1.0, 1.0),
        description="Parameters of the Beta prior of a success rate, used by `bayesian` estimates of a single task or conversation and by `pooled` estimates.",
    )
    credible_level: float = Field(
        default=0.95, gt=0, lt=1, description="Probability of the `bayesian` and `pooled` intervals."
    )
    success_reward: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Minimum reward that counts as a success, for records without a success component whose reward is "
        "between 0 and 1. If it is not set, their outcome is unknown.",
    )
    error_causes: dict[str, tuple[ErrorPattern, ...]] = Field(
        default={},
        description='Regexes for the errors of your own harness and agents, e.g. `harness = ["spot instance preempted"]`. '
        "They are searched, ignoring case, in errors that the packaged list does not explain.",
    )
    metric_modules: tuple[str, ...] = Field(
        default=(), description="Python modules with additional metrics in `METRICS`."
    )
    metrics: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description='Metrics that judges are asked about; `default` means all except decisive_step, e.g. `["default", "decisive_step"]`. Default: `default`.',
    )
    metrics_off: tuple[str, ...] = Field(default=(), description="Metrics to omit.")

    agent_modules: tuple[str, ...] = Field(
        default=(),
        description="Python modules whose functions `agent-eval simulate` may call as agents and as mocks of tools.",
    )
    agent_commands: tuple[str, ...] = Field(
        default=(),
        description="Commands that `agent-eval simulate` may run as agents, exactly as they are in agents.yaml.",
    )
    agent_variables: tuple[str, ...] = Field(
        default=(),
        description="Environment variables that endpoints in agents.yaml may use, for example in headers.",
    )
    agent_concurrency: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="Maximum number of concurrent conversations with agents under test.",
    )
    user_model: str | None = Field(
        default=None,
        description="Model that plays simulated users, as named by litellm. Scripted users need no model.",
    )

    judge_model: str | None = Field(
        default=None,
        description="Judge model as named by litellm; separate several with commas to form an ensemble.",
    )
    judge_mode: Literal["one_call", "per_metric"] = Field(
        default="one_call",
        description="Whether a call asks about all metrics of a turn (`one_call`) or about a single metric (`per_metric`). The latter is intended for audits and costs several times as much.",
    )
    judge_combine: Literal["median", "mean"] = Field(
        default="median", description="Method to combine the ratings of an ensemble."
    )
    judge_temperature: float = Field(
        default=0.0, ge=0, le=2, description="Sampling temperature of the judge."
    )
    judge_max_tokens: int = Field(
        default=4096, ge=64, description="Maximum number of tokens of a reply, including reasoning."
    )
    judge_context_tokens: int | None = Field(
        default=None,
        ge=2048,
        description="Context size of the judge model in tokens, for prompt and reply. Default: the size known to litellm, "
        "else 128,000. Longer conversations are shown in part, and the questions are asked again if this setting changes.",
    )
    judge_window: int = Field(
        default=100,
        ge=2,
        description="Maximum number of earlier turns in a prompt. If there are more, the oldest half of the window is omitted "
        "at a time. With 100, conversations of common benchmarks are shown in full, and the cost of a long conversation "
        "grows linearly with its length.",
    )
    judge_multimodal: bool | None = Field(
        default=None,
        description="Whether to send images (PNG, JPEG, GIF, WebP), audio (WAV, MP3) and PDF files to judge models. "
        "Default: according to litellm's description of each model. Attachments stored as a URL or a path are never sent.",
    )
    judge_redact: bool = Field(
        default=False,
        description="Whether personal data (e-mail addresses, phone and card numbers, IBANs, `redact_patterns` and "
        "`redact_function`) is replaced by placeholders in everything that is sent to judge models. Attachments are then sent "
        "only with `judge_multimodal = true`. Answers are stored separately: after a change, judges are asked again.",
    )
    keep_answers: bool = Field(
        default=False,
        description="Whether stored answers to an earlier wording of a built-in question are kept, instead of asking judge "
        "models again after an upgrade. Kept answers are marked (`earlier_profile`, and `n_earlier_wording` of boards). "
        "Without a judge model they are always kept.",
    )
    redact_patterns: dict[str, str] = Field(
        default={},
        description="Own patterns of personal data: a kind, e.g. `customer`, and a regex (without look-around and "
        "backreferences). Also used by `agent-eval export --redact`.",
    )
    redact_function: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:\w+$",
        description="Own function, as `module:function`, that is given a text and returns the personal values in it, or pairs "
        "of a kind and a value. Also used by `agent-eval export --redact`.",
    )
    judge_repeats: int = Field(
        default=1,
        ge=1,
        le=20,
        description="Number of times each judge model is asked each question. The median or the majority of labels counts; "
        "the column `disagreement` contains the spread.",
    )
    judge_sample: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of the conversations in each session that judge models are asked about; the selection is always "
        "the same. Conversations that fill a slot or a required test are always included. Default: all.",
    )
    judge_outcome_sample: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of the conversations with a declared outcome in each session that judge models are also asked "
        "`goal_completion` about, to check the judges without labels. Table `judge_calibration` compares the answers with "
        "the outcomes; they never count in a result.",
    )
    judge_timeout_s: float = Field(default=60.0, gt=0, description="Maximum duration of a call, in seconds.")
    judge_max_reply_mb: float = Field(
        default=4.0,
        gt=0,
        le=100,
        description="Maximum size of an uncompressed reply, in megabytes.",
    )
    judge_direct: bool = Field(
        default=True,
        description="Whether requests are sent without litellm after it sent two alike.",
    )
    judge_concurrency: int = Field(
        default=16, ge=1, le=1000, description="Maximum number of concurrent calls per judge model."
    )
    judge_price_in: float | None = Field(
        default=None,
        ge=0,
        description="Price per million prompt tokens in US dollars. Together with `judge_price_out`, it replaces the price known to litellm.",
    )
    judge_price_out: float | None = Field(
        default=None, ge=0, description="Price per million reply tokens in US dollars."
    )
    budget: BudgetSettings = Field(
        default=BudgetSettings(), description="Table of caps on the calls of judge models and their cost."
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

    @field_validator("error_causes")
    @classmethod
    def _are_regexes(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        if unknown := sorted(set(value) - {"harness", "agent"}):
            raise ValueError(f"{unknown[0][:80]!r} is unknown; allowed are harness, agent")
        for name, patterns in value.items():
            for pattern in patterns:
                if _matches_nothing(name, pattern, f"(?i)(?:{pattern})"):
                    raise ValueError(
                        f"{name}: {pattern[:80]!r} matches every error; write a part of the error's text"
                    )
        return value

    @field_validator("redact_patterns")
    @classmethod
    def _are_kinds(cls, value: dict[str, str]) -> dict[str, str]:
        for kind, pattern in value.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", kind):
                raise ValueError(f"{kind[:80]!r} is not a kind; write a lower-case word, e.g. customer_id")
            if _matches_nothing(kind, pattern, pattern):
                raise ValueError(f"{kind}: {pattern[:80]!r} matches an empty text; write a part of the value")
        return value

    @property
    def judge_models(self) -> tuple[str, ...]:
        """Return the distinct names of the judge models; empty if none is set."""
        model_names = (self.judge_model or "").split(",")
        return tuple(dict.fromkeys(name.strip() for name in model_names if name.strip()))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence: arguments, environment variables, file."""
        variables = {name: os.environ[variable] for name, variable in _misplaced_variables().items()}
        arguments, of_caps, in_file = (
            InitSettingsSource(settings_cls, in_table(values))
            for values in (init_settings(), variables, cls.in_file)
        )
        return arguments, env_settings, of_caps, in_file


def _matches_nothing(name: str, pattern: str, whole: str) -> bool:
    """Return whether `whole`, which contains the pattern, matches the empty text.

    Raises:
        ValueError: If the pattern is not a supported regex.
    """
    import polars as pl

    try:
        pl.Series([""]).str.contains(pattern)  # alone first, because "a)|(b" is one in a group
        return bool(pl.Series([""]).str.contains(whole).item())
    except pl.exceptions.ComputeError as error:
        raise ValueError(
            f"{name}: {pattern[:80]!r} is not a supported regex (look-around and backreferences are not allowed); "
            "escape special characters with a backslash"
        ) from error


def read_settings(root: Path) -> Settings:
    """Read the settings of the project at `root`.

    Raises:
        SettingsError: If the file is not TOML, or a setting is unknown or out of range; the message names the key.
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
    """Read gates from a separate TOML file.

    The gates are the file's table [gates], or the whole file if it has only keys of this table.

    Raises:
        SettingsError: If the file is missing or not TOML, or a key is unknown or out of range; the message names the
            key.
    """
    if not path.exists():
        raise SettingsError(f"{path}: the file does not exist. Expected a TOML file with a table [gates].")
    toml_values = _read(path)
    if "gates" not in toml_values and toml_values.keys() <= GateSpec.model_fields.keys():
        toml_values = {"gates": toml_values}

    class _Whole(BaseModel, extra="allow"):
        gates: GateSpec

    try:
        gates_file = _Whole.model_validate(toml_values)
    except ValidationError as error:
        raise _explained(error, str(path)) from error
    for key in gates_file.model_extra or {}:
        if key not in Settings.model_fields:
            near = difflib.get_close_matches(key, Settings.model_fields, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise SettingsError(
                f"{path}: key {key[:80]!r} is unknown.{hint} Gates belong in the table [gates]."
            )
    return gates_file.gates


def _explained(error: ValidationError, file: str) -> SettingsError:
    """Describe the first problem on one line, with the key, the reason, the closest valid key and all valid keys."""
    first = error.errors(include_input=False)[0]
    path = [
        part for part in map(str, first["loc"]) if "[" not in part
    ]  # without the names of pydantic's types
    key = ".".join(path)[:80]
    reason = first["msg"].removeprefix("Value error, ")
    allowed = _allowed(path)
    near = difflib.get_close_matches(path[-1], allowed, n=1) if first["type"] == "extra_forbidden" else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    old = _misplaced_variables().get(path[-1]) if path[0] == "budget" else None
    nested = path if path[0] == "budget" else path[:1]
    variable = (old or f"AGENT_EVAL_{'__'.join(nested).upper()}")[:76]
    return SettingsError(
        f"Setting {key!r} in {file} or {variable}: {reason}.{hint}{_meaning(path)} Settings: {', '.join(allowed)}."
    )


def _meaning(path: list[str]) -> str:
    """Return the description of a setting as a sentence, or an empty text if the key is unknown."""
    model = BudgetSettings if path[0] == "budget" else Settings
    setting = model.model_fields.get(path[-1]) if len(path) == 1 or path[0] == "budget" else None
    return "" if setting is None else f" Description: {setting.description}"


def _allowed(path: list[str]) -> list[str]:
    """Return the valid keys at the position of the last key in the path."""
    if path[0] == "store" and len(path) == 2:
        return list(LakeSettings.model_fields)
    if path[0] == "budget" and len(path) == 2:
        return list(BudgetSettings.model_fields)
    if path[0] == "inbox" and len(path) > 2:
        return list(InboxSetting.model_fields)
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
    """Return the content of the file, or an empty dict if the file does not exist."""
    if not os.path.lexists(path):
        return {}
    try:
        if not path.is_file():
            raise ValueError("it is not a file")
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
    """Return the AGENT_EVAL_* environment variables that are not settings of this release."""
    others = ("home", "shared_data", "parent_run", "ui_without_login")
    names = {
        f"AGENT_EVAL_{n.upper()}" for n in (*Settings.model_fields, *BudgetSettings.model_fields, *others)
    }
    return sorted(n for n in os.environ if n.startswith("AGENT_EVAL_") and n.split("__")[0] not in names)


def _misplaced_variables() -> dict[str, str]:
    """Return the environment variables that set a cap as if it was outside of the table [budget], by cap.

    The case of their letters does not matter, as for every setting.
    """
    variables = {variable.upper(): variable for variable in os.environ}
    names = {name: variables.get(f"AGENT_EVAL_{name.upper()}") for name in BudgetSettings.model_fields}
    return {name: variable for name, variable in names.items() if variable is not None}


def misplaced_caps(root: Path) -> list[str]:
    """Return a hint for each cap of the project at `root` that is outside of the table [budget]."""
    in_file = [name for name in BudgetSettings.model_fields if name in _read(root / FILE)]
    return [
        *(
            f"{FILE}: write {name} in the table [budget]; outside of it, it is read in this release only."
            for name in in_file
        ),
        *(
            f"Environment: set AGENT_EVAL_BUDGET__{name.upper()}; {variable} is read in this release only."
            for name, variable in _misplaced_variables().items()
        ),
    ]


def home_around(start: Path | None = None) -> Home:
    """Return the folders of the project at or above `start`, with the data folder of its settings.

    Raises:
        NoRootError: If no project is found.
        SettingsError: If the settings cannot be read.
    """
    root = find_root(start)
    return Home(root=root, data=root / read_settings(root).data_dir)
