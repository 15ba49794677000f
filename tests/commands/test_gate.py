"""`agent-eval gate` as CI meets it: what it prints, and above all its exit code."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pytest
from typer.testing import CliRunner

from agent_eval.cli import app, main
from agent_eval.project import Project
from tests.commands.conftest import Model

TALK = [{"role": "user", "content": "Cancel order 2"}, {"role": "assistant", "content": "Cancelled."}]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command as a shell runs it: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["agent-eval", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return code, out, err

    return call


@pytest.fixture
def gated(command: Command, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`agent-eval gate --agent lumen-support` on the sample, with these gates."""
    monkeypatch.setenv("AGENT_EVAL_HOME", str(sample_root))

    def call(gates: str, *options: str) -> tuple[int, str, str]:
        (tmp_path / "gates.toml").write_text(gates)
        config = ("--config", str(tmp_path / "gates.toml"))
        return command("gate", "--agent", "lumen-support", *config, *options)

    return call


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        ("[gates]", 0),
        ("[gates.thresholds]\nhelpfulness = 4.25", 0),  # D5: 5 + 4 + 4 + 4 over 4 turns
        ("[gates.thresholds]\nhelpfulness = 4.26", 1),
        ("[gates.overall]\nanswer_correctness = 0", 2),  # nothing was expected: no scores
        ("[gates]\nfail_on_error_severity = 'medium'", 1),
        ("[gates]\nfail_on_error_severity = 'high'", 0),
        ("[gates.baseline]\nagent = 'quill-help'", 0),
        ("[gates.judge_drift]\nmin_kappa = 0.5", 2),  # never audited
        ("[gates.calibration]\nmin_kappa = 0.6", 2),  # one label has no interval
        ("[gates.calibration]\nmin_n = 20", 1),
        ("[gates.agents.lumen-support]\nfail_on_error_severity = 'low'", 1),
        ("[gates.agents.quill-help]\nfail_on_error_severity = 'low'", 0),
        ("[gates.methodologies.'1.3.0'.thresholds]\nhelpfulness = 5", 1),
        ("[gates.methodologies.'1.2.0'.thresholds]\nhelpfulness = 5", 0),
        ("[thresholds]\nhelpfulness = 5", 1),  # a file of its own needs no [gates]
    ],
)
def test_the_exit_code_says_how_the_gates_stand(gated: Command, gates: str, code: int) -> None:
    assert gated(gates)[0] == code


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        ("[gates.thresholds]\nhelpfullness = 4", "Did you mean 'helpfulness'?"),
        ("[gates.threshold]\nhelpfulness = 4", "Did you mean 'thresholds'?"),
        ("[gates.baseline]\nagnt = 'quill-help'", "Did you mean 'agent'?"),
        ("[gates.agents.lumen-suport]", "Did you mean 'lumen-support'?"),
        ("[gates.agents.lumen-support]\nagents = {}", "gates.agents.lumen-support.agents"),
        ("[gates]\n[gate.thresholds]\nhelpfulness = 4", "Did you mean 'gates'?"),
        ("[gate.thresholds]\nhelpfulness = 4", "gates"),
        ("[gates]\nfail_on_error_severity = 'hihg'", "'low', 'medium', 'high', 'critical'"),
        ("[gates.baseline]\nquantities = []", "name either agent or methodology"),
        ("[gates.calibration]\nmin_n = 5\nmetrics = ['helpfullness']", "Did you mean 'helpfulness'?"),
        ("[gates.thresholds]\nhelpfulness = nan", "expected a finite number"),
    ],
)
def test_a_slip_is_named_and_never_passes(gated: Command, gates: str, said: str) -> None:
    code, out, err = gated(gates)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_is_named(gated: Command) -> None:
    code, _, err = gated("", "--config", "nowhere.toml")
    assert code == 2
    assert "nowhere.toml: the file does not exist" in err


def test_the_gates_of_the_settings_hold_and_the_environment_adds_to_them(
    command: Command, sample_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sample_copy / "agent_eval.toml").write_text("[gates.thresholds]\nhelpfulness = 4.25\n")
    assert command("gate", "--agent", "lumen-support")[0] == 0
    monkeypatch.setenv("AGENT_EVAL_GATES", '{"thresholds": {"coherence": 5}}')
    code, out, _ = command("gate", "--agent", "lumen-support", "--json")
    assert code == 1
    metrics = {row["subject"].split()[0] for row in json.loads(out) if row["gate"] == "threshold"}
    assert metrics == {"helpfulness", "coherence"}


def test_an_empty_project_passes_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("AGENT_EVAL_HOME", str(tmp_path))
    code, out, _ = command("gate", "--github", "--junit", str(tmp_path / "gates.xml"))
    assert code == 2
    assert "::warning" in out
    assert ElementTree.parse(tmp_path / "gates.xml").find(".//error") is not None


def test_github_gets_annotations_and_a_file_gets_junit(gated: Command, tmp_path: Path) -> None:
    file = tmp_path / "gates.xml"
    code, out, _ = gated("[gates.thresholds]\nhelpfulness = 4.26", "--github", "--junit", str(file))
    assert code == 1
    errors = [line for line in out.splitlines() if line.startswith("::error ")]
    assert errors == [
        "::error title=lumen-support 1.3.0%3A threshold%3A helpfulness in D5 failed::"
        "mean 4.25 over 4 of 4 answers, at least 4.26 required"
    ]
    root = ElementTree.parse(file).getroot()
    assert (root.get("failures"), root.get("errors")) == ("1", "0")


def test_json_stays_json_beside_annotations(gated: Command) -> None:
    _, out, err = gated("[gates.thresholds]\nhelpfulness = 4.26", "--github", "--json")
    rows = json.loads(out)
    assert {row["result"] for row in rows} == {"passed", "failed"}
    assert "::error " in err


@pytest.mark.slow
def test_changed_gates_are_held_again_and_nothing_else_is_made(sample_copy: Path) -> None:
    def made_by(name: str) -> set[str]:
        with duckdb.connect(str(sample_copy / "data" / "agent_eval.duckdb"), read_only=True) as con:
            return {run for (run,) in con.execute(f"SELECT DISTINCT dagster_run_id FROM {name}").fetchall()}

    names = ("gate_results", "turn_judgments", "composite_scores", "leaderboard")
    before = {name: made_by(name) for name in names}
    (sample_copy / "agent_eval.toml").write_text("[gates.thresholds]\nhelpfulness = 5\n")
    result = CliRunner().invoke(app, ["run"])
    assert result.exit_code == 0  # whatever the gates say
    assert "Nothing was stale" in result.stderr
    assert "gates of 32 more agent/version pairs" in result.stderr
    after = {name: made_by(name) for name in names}
    assert {name for name in names if before[name] != after[name]} == {"gate_results"}
    stored = Project.open().table("gate_results")
    assert "failed" in set(stored.filter(gate="threshold")["result"])
    assert "more pairs" not in CliRunner().invoke(app, ["run"]).stderr


def test_a_slip_in_the_gates_stops_a_run_before_anything_is_paid(
    command: Command, root: Path, model: Model
) -> None:
    (root / "agent_eval.toml").write_text("[gates.thresholds]\nhelpfullness = 4\n")
    code, _, err = command("run", "--judge", "some/model")
    assert (code, model.n_asked()) == (2, 0)
    assert "Did you mean 'helpfulness'?" in err


@pytest.mark.slow
def test_an_agent_that_answers_nothing_in_half_of_its_turns_is_red(
    command: Command, root: Path, model: Model
) -> None:
    shutil.rmtree(root / "data" / "sessions")
    (root / "agent_eval.toml").write_text("[gates.thresholds]\nhelpfulness = 3\n")
    for name, said in (("quiet", ""), ("loud", "Yes.")):
        texts = (f"Wish 0 of {name}?", said, f"Wish 1 of {name}?", "Gladly.")
        talk = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
        lines = [json.dumps({"task_id": f"t{i}", "messages": talk}) for i in range(2)]
        (root / f"{name}.jsonl").write_text("\n".join(lines))
        assert command("import", "openai", str(root / f"{name}.jsonl"), "--agent", name)[0] == 0
    model.answers = {"helpfulness": 5}  # the mean of what was said reaches the threshold
    assert command("run", "--methodology", "1.3.0", "--judge", "some/model")[0] == 0
    assert command("gate", "--agent", "loud")[0] == 0
    code, out, _ = command("gate", "--agent", "quiet", "--json")
    found = {row["gate"]: row for row in json.loads(out)}
    assert code == 1
    assert {name for name, row in found.items() if row["result"] == "failed"} == {"silent_turns"}
    assert found["silent_turns"]["evidence"].startswith("2 of 4 turns without a reply, 50.0 %: ")
    clusters = Project.open(root).table("error_clusters").filter(label="no reply")
    assert clusters.select("agent_id", "severity", "n_turns").rows() == [("quiet", "high", 2)]


@pytest.mark.slow
def test_declared_outcomes_need_no_judge(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    monkeypatch.setenv("AGENT_EVAL_HOME", str(root))
    assert command("init", str(root))[0] == 0
    done = [{"task_id": f"t{n}", "messages": TALK, "reward": 1} for n in range(3)]
    (tmp_path / "runs.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in done))
    assert command("import", "openai", str(tmp_path / "runs.jsonl"), "--agent", "bot")[0] == 0
    for settings, code in (
        ('metrics = ["goal_completion"]', 0),  # declared outcomes answer everything
        ('metrics = ["goal_completion"]\n[gates.overall]\ngoal_completion = 1', 0),
        ('metrics = ["goal_completion"]\n[gates]\nsilent_turns = 0', 2),  # asked for, and nobody looks
    ):
        (root / "agent_eval.toml").write_text(settings)
        if "[gates" not in settings:  # gates are evaluated on what is stored
            assert command("run", "--methodology", "1.3.0")[0] == 0
        assert command("gate")[0] == code, settings
    assert (root / ".dagster").is_dir()  # of the project, whatever the folder of the command
