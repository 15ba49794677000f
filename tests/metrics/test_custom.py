"""Custom metrics from YAML files and from modules: read strictly, refused with file, line and key."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_eval.errors import ConfigurationError, NotFoundError
from agent_eval.metrics.base import NO_FAILURE
from agent_eval.metrics.custom import MetricFileError, load_metrics, read_metric
from agent_eval.metrics.metric_set import DEFAULT

POLITENESS = """\
name: politeness
grain: turn
kind: rating
question: Is this reply polite?
anchors:
  "1": Rude.
  "2": Curt.
  "3": Neutral.
  "4": Polite.
  "5": Warm and polite.
notes: Politeness, not servility.
"""


def written(folder: Path, text: str, name: str = "politeness") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_a_metric_with_its_anchors_from_five_to_one(tmp_path: Path) -> None:
    metric = read_metric(written(tmp_path, POLITENESS))
    assert (metric.name, metric.grain, metric.kind) == ("politeness", "turn", "rating")
    assert (metric.answer, list(metric.anchors)) == ("rating_1to5", ["5", "4", "3", "2", "1"])
    assert metric.anchors["5"] == "Warm and polite."


@pytest.mark.parametrize(
    ("lines", "scale", "anchors"),
    [
        (
            "kind: rating\nminimum: -1.5\nmaximum: 10\nanchors: {'-1.5': a, '10': b}",
            (-1.5, 10.0),
            ["10", "-1.5"],
        ),
        ("kind: value\nanchors: {'0': No., '1': Yes.}", (0.0, 1.0), ["1", "0"]),
    ],
    ids=["a scale of real numbers", "zero or one"],
)
def test_a_metric_may_have_values(
    tmp_path: Path, lines: str, scale: tuple[float, float], anchors: list[str]
) -> None:
    text = f"name: effort\ngrain: conversation\nquestion: How much?\n{lines}"
    metric = read_metric(written(tmp_path, text, "effort"))
    assert (metric.answer, metric.scale, metric.is_binary) == ("value", scale, "kind: value" in lines)
    assert list(metric.anchors) == anchors


BRAND_FAILURE = """\
name: brand_failure
grain: turn
kind: label
question: Which failures does it show?
anchors: {off brand: Speaks as another company., no failure: None., promises: Promises too much.}
severities: {promises: critical}
applies_when: has_tool_calls
"""


def test_labels_keep_their_order_with_no_failure_first_and_their_severities(tmp_path: Path) -> None:
    metric = read_metric(written(tmp_path, BRAND_FAILURE, "brand_failure"))
    assert metric.labels == (NO_FAILURE, "off brand", "promises")
    assert (metric.severity_of("promises"), metric.severity_of("off brand")) == ("critical", "medium")
    assert metric.applies_when == "has_tool_calls"


def changed(old: str, new: str) -> str:
    assert old in POLITENESS
    return POLITENESS.replace(old, new)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(changed("grain: turn\n", ""), r"politeness\.yaml:1: grain: it is needed", id="key missing"),
        pytest.param(changed("notes:", "note:"), r"politeness\.yaml:11: note: unknown key", id="unknown key"),
        pytest.param(changed("turn", "turns"), r":2: grain: .*'turn' or 'conversation'", id="bad grain"),
        pytest.param(changed("turn", "session"), r":2: grain: .*'turn' or 'conversation'", id="session"),
        pytest.param(changed("rating", "score"), r":3: kind: .*'rating', 'label' or 'value'", id="bad kind"),
        pytest.param(changed("name: politeness", "name: Polite ness"), r":1: name: lower-case letters", id="bad name"),
        pytest.param(changed("politeness", "courtesy"), r":1: holds the metric courtesy; rename .* courtesy\.yaml", id="file name"),
        pytest.param(changed('  "3": Neutral.\n', ""), r":5: anchors: a rating has the anchors 5, 4, 3, 2", id="anchor missing"),
        pytest.param(changed("Neutral.", ""), r":8: anchors\.3: Input should be a valid string", id="anchor empty"),
        pytest.param(changed("Is this", "Is \\u200b this").replace("question: ", 'question: "').replace("polite?", 'polite?"'),
                     r":4: question: holds a control or invisible character", id="invisible"),
        pytest.param(POLITENESS + "minimum: 0\n", r":12: minimum and maximum: give both", id="half a scale"),
        pytest.param(POLITENESS + "minimum: 5\nmaximum: 1\n", r"the minimum below the maximum", id="scale reversed"),
        pytest.param(POLITENESS + "minimum: 0\nmaximum: 4\n", r":\d+: anchors\.5: not a number from 0 to 4", id="off the scale"),
        pytest.param(POLITENESS + "minimum: 0\nmaximum: 5\n", r"both ends of the scale need one, 0 and 5", id="no end"),
        pytest.param(POLITENESS + "minimum: nan\nmaximum: 5\n", r":12: minimum: .*finite number", id="not a number"),
        pytest.param(POLITENESS + "severities: {rude: high}\n", r":12: severities: only labels", id="severity of a rating"),
        pytest.param(changed("grain: turn", "grain: conversation") + "applies_when: has_tools\n", r":12: applies_when: 'has_tools' is not about a conversation", id="condition"),
        pytest.param(POLITENESS + "name: again\n", r":12: the key name is given twice", id="key twice"),
        pytest.param(POLITENESS + "extra: !!python/object:os.system {}\n", r":12: the tag .* is not supported", id="tag"),
        pytest.param("- politeness\n", "is not a mapping", id="a list"),
        pytest.param("", "is not a mapping", id="empty"),
        pytest.param("a: [" * 60, "nested deeper", id="deep"),
        pytest.param(changed("Rude.", "x" * 3000), r":6: anchors\.1: .*at most 2000 characters", id="endless"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(MetricFileError, match=says) as caught:
        read_metric(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('kind: value\nanchors: {"1": Yes., "2": No.}', "a value has the two anchors 0 and 1"),
        ("kind: label\nanchors: {w: Warm., c: Cold.}\nseverities: {c: low}", "only failures have one"),
        (
            "kind: label\nanchors: {no failure: None., cold: Cold.}\nseverities: {hot: low}",
            r"severities\.hot: not a failure label; allowed: cold",
        ),
        ("kind: label\nanchors: {warm: Warm.}", "anchors: .*at least 2"),
    ],
)
def test_anchors_and_severities_fit_the_kind(tmp_path: Path, lines: str, says: str) -> None:
    text = f"name: tone\ngrain: turn\nquestion: Which?\n{lines}"
    with pytest.raises(MetricFileError, match=says):
        read_metric(written(tmp_path, text, "tone"))


@pytest.mark.parametrize("make", ["folder", "bytes", "huge"])
def test_what_is_no_text_file_is_refused(tmp_path: Path, make: str) -> None:
    path = tmp_path / "politeness.yaml"
    if make == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe" if make == "bytes" else b"#" * 21_000_000)
    with pytest.raises(MetricFileError, match=r"politeness\.yaml"):
        load_metrics(tmp_path)


def test_the_files_of_a_folder_join_the_built_in_metrics(tmp_path: Path) -> None:
    assert load_metrics(tmp_path / "absent") == load_metrics(None) == DEFAULT
    written(tmp_path, POLITENESS)
    (tmp_path / ".hidden.yaml").write_text("[")
    (tmp_path / "README.md").write_text("notes")
    found = load_metrics(tmp_path, off=["verbosity"])
    assert found.names == (DEFAULT.names | {"politeness"}) - {"verbosity"}
    assert "politeness" not in load_metrics(tmp_path, off=["politeness"]).names
    with pytest.raises(NotFoundError, match="Did you mean 'politeness'"):
        load_metrics(tmp_path, off=["politness"])


def test_a_file_cannot_take_a_built_in_name_even_when_that_metric_is_off(tmp_path: Path) -> None:
    written(tmp_path, POLITENESS.replace("politeness", "verbosity"), "verbosity")
    taken = "'verbosity': the name is already used by a metric of agent-eval"
    with pytest.raises(ConfigurationError, match=taken):
        load_metrics(tmp_path, off=["verbosity"])


MODULE = """\
from agent_eval.metrics.base import Measured, Metric

class Length(Metric):
    def measure(self, turns, conversation, expected):
        n = len((turns[-1].agent_message or "").split())
        return Measured(f"{n} words", value=float(n))

METRICS = (
    Length("n_words", "turn", "rating", "How many words?", {"0": "None.", "1e6": "Very many."}, minimum=0, maximum=1e6),
)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "own_metrics_of_a_test"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{name}.py").write_text(MODULE)
    yield name
    sys.modules.pop(name, None)


def test_a_module_lists_its_metrics(module: str) -> None:
    metric = load_metrics(modules=[module, module]).get("n_words")
    assert metric.is_measured
    assert metric.scale == (0, 1e6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("METRICS = ()", "has no METRICS"),
        ("x = 1", "has no METRICS"),
        ("METRICS = (1,)", "METRICS holds 1, which is not a Metric"),
        ("1 / 0", "cannot be imported .ZeroDivisionError"),
        (MODULE.replace('"n_words"', '"Words"'), "metric 'Words': name: lower-case letters"),
        (MODULE.replace("maximum=1e6", "maximum=None"), "minimum and maximum: give both"),
        (MODULE.replace('"turn"', '"session"'), "grain: .*'turn' or 'conversation'"),
    ],
)
def test_a_bad_module_is_refused_by_name(module: str, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / f"{module}.py").write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        load_metrics(modules=[module])


def test_a_module_that_is_not_there_is_named_with_the_way_to_it() -> None:
    with pytest.raises(ConfigurationError, match=r"'no_such_module'.*put its folder on PYTHONPATH"):
        load_metrics(modules=["no_such_module"])
