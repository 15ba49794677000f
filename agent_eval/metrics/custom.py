"""Load custom metrics from YAML files in data/metrics and from Python modules that the settings name.

Entry points are not used. A metric costs money on every turn, so the installation of a package must not change the
metrics of a project. An invalid definition stops the run before any judge is called, because the run would
otherwise ask fewer questions than intended.
"""

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from agent_eval.errors import ConfigurationError
from agent_eval.formats.yaml import Document, YamlError, read_document, read_text
from agent_eval.metrics.base import GOAL_MISSED, Metric
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION
from agent_eval.metrics.declared import Declared, key_of, problems_of, reasons
from agent_eval.metrics.metric_set import BUILT_IN, MetricSet

NAME_IN_MODULE = "METRICS"
SHOWN_ERRORS = 5


class MetricFileError(ConfigurationError):
    """Raised when a file in data/metrics does not define a valid metric.

    Fix: Correct the file, or move it out of the folder.
    """

    def __init__(self, path: Path, reason: str, line: int | None = None) -> None:
        at = f"{path}:{line}" if line else str(path)
        super().__init__(f"{at}: {reason}. Fix the file, or move it out of {path.parent.name}/.")


def _invalid_module(module: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"metric_modules names {module!r}: {reason}.")


def load_metrics(
    folder: Path | None = None,
    modules: Iterable[str] = (),
    off: Iterable[str] = (),
    only: Iterable[str] | None = None,
) -> MetricSet:
    """Return a project's metrics: the built-in and custom metrics, limited by the settings metrics and metrics_off.

    Args:
        folder: The folder data/metrics, which need not exist.
        modules: The setting metric_modules.
        off: The setting metrics_off.
        only: The setting metrics; None for all metrics except those on request.

    Raises:
        MetricFileError: If a file does not define a valid metric; the message names file, line and key.
        ConfigurationError: If a module cannot be imported or does not provide valid metrics,
            or if two metrics have the same name, or one depends on goal_completion, which is off.
        NotFoundError: If a name in `off` or `only` is not a metric; the message suggests the closest match.
    """
    own = [*(metrics_in_files(folder) if folder else ()), *metrics_in_modules(modules)]
    metric_set = BUILT_IN.with_custom(own).without(off).only(only)
    lost = [metric.name for metric in metric_set.metrics if metric.applies_when == GOAL_MISSED]
    if lost and GOAL_COMPLETION.name not in metric_set.names:
        raise ConfigurationError(
            f"Metric {lost[0]!r} is asked only where {GOAL_COMPLETION.name} is 0, and that is not asked. Add "
            f"{GOAL_COMPLETION.name!r} to the setting metrics, or remove it from metrics_off."
        )
    return metric_set


def metrics_in_files(folder: Path) -> tuple[Metric, ...]:
    """Return the metrics of a folder's YAML files, sorted by file name, without hidden files."""
    if not folder.is_dir():
        return ()
    files = (p for p in folder.iterdir() if p.suffix in {".yaml", ".yml"} and not p.name.startswith("."))
    return tuple(read_metric(path) for path in sorted(files))


def read_metric(path: Path) -> Metric:
    """Return the metric that a file defines; its name must be that of the file.

    Raises:
        MetricFileError: If the file does not define a valid metric.
    """
    try:
        document = read_document(read_text(path).removeprefix("\ufeff"), "text", allow_aliases=True)
    except YamlError as error:
        raise MetricFileError(path, error.reason, error.line) from error
    if not isinstance(document.value, dict):
        raise MetricFileError(path, "is not a mapping; docs/metrics.md lists the keys of a metric")
    try:
        declared = Declared.model_validate(document.value)
    except ValidationError as error:
        raise MetricFileError(path, _joined(causes := reasons(error)), _line(document, causes[0])) from error
    if path.name != f"{declared.name}.yaml":
        reason = f"holds the metric {declared.name}; rename the file to {declared.name}.yaml"
        raise MetricFileError(path, reason, document.line_of(("name",)))
    return declared.metric()


def metrics_in_modules(modules: Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics that each module lists in its METRICS."""
    return tuple(metric for name in dict.fromkeys(modules) for metric in _metrics_of(name))


def _metrics_of(module: str) -> Iterator[Metric]:
    try:
        loaded = importlib.import_module(module)
    except Exception as error:  # the import runs the module's code, which can raise any exception
        reason = f"it cannot be imported ({type(error).__name__}: {error}); install it or put its folder on PYTHONPATH"
        raise _invalid_module(module, reason) from error
    listed = getattr(loaded, NAME_IN_MODULE, None)
    if not isinstance(listed, tuple | list) or not listed:
        raise _invalid_module(module, f"it has no {NAME_IN_MODULE} = (…,) that lists its metrics")
    for metric in listed:
        if not isinstance(metric, Metric):
            raise _invalid_module(module, f"{NAME_IN_MODULE} holds {metric!r:.60}, which is not a Metric")
        if problems := problems_of(metric):
            raise _invalid_module(module, f"metric {metric.name!r:.80}: {_joined(problems)}")
        yield metric


def _joined(problems: list[str]) -> str:
    more = len(problems) - SHOWN_ERRORS
    return "; ".join([*problems[:SHOWN_ERRORS], *([f"and {more} more"] if more > 0 else [])])


def _line(document: Document, reason: str) -> int | None:
    return document.line_of(key_of(reason))
