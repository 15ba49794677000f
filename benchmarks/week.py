"""A simulated week of the two schedules: what each night makes, and what it asks and spends. By hand; needs `faketime`.

`python -m benchmarks week`. Before each night one thing changes in the files or settings. The tick of the schedule is
evaluated on that night's date in a process of its own, and the run that it requests is executed there. Each partition
may be made at most once a night; what automation may ask in a day has a cap, and so has the audit.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from agent_eval.tables.schema import MADE_FROM, shape_of
from benchmarks.judge_server import MockJudge, mock_judge
from benchmarks.live import environment
from tests.defs.test_live import edit_a_session, edit_the_weights_of_a_version, make_project, rate

CAP, AUDIT_SIZE = 40, 12
START = datetime(2027, 3, 1, 3, tzinfo=UTC)  # a Monday

Change = Callable[[Path], None]


def nothing(root: Path) -> None:
    """No change."""


def judge(root: Path) -> None:
    """From tonight a model judges, at a price; automation may ask `CAP` calls a day."""
    (root / "agent_eval.toml").write_text(
        f'judge_model = "openai/mock"\njudge_price_in = 1.0\njudge_price_out = 2.0\n'
        f"budget.automation_max_calls_per_day = {CAP}\naudit_size = {AUDIT_SIZE}\n"
    )


WEEK: tuple[tuple[str, str, Change], ...] = (
    ("nightly", "first run", nothing),
    ("nightly", "nothing changed", nothing),
    ("nightly", "a changed session", edit_a_session),
    ("nightly", "a changed rating", rate),
    ("nightly", "changed weights of a version", edit_the_weights_of_a_version),
    ("nightly", "another judge", judge),
    ("weekly_audit", "the audit", nothing),
    ("nightly", "nothing changed, the cap left questions open", nothing),
)


def measure() -> Iterator[str]:
    """One line per night; the last says what was broken."""
    if not shutil.which("faketime"):
        yield "faketime is not installed"
        return
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as folder, mock_judge() as asked:
        root = Path(folder) / "week"
        make_project(root)
        for day, (schedule, what, change) in enumerate(WEEK):
            change(root)
            asked.reset(latency_ms=5)
            made = _night(root, asked, schedule, START + timedelta(days=day))
            calls = asked.stats()["calls"]
            twice = {place: n for place, n in made.items() if n > 1}
            broken += [f"{what}: {place} was made {n} times" for place, n in twice.items()]
            if calls > CAP or (schedule == "weekly_audit" and calls > AUDIT_SIZE):
                broken.append(f"{what}: {calls} calls")
            yield f"{schedule}, {what}: {_words(made)}; {calls} judge calls"
    yield f"broken: {'; '.join(broken) or 'nothing'} (bars: each partition once a night, {CAP} calls a day, {AUDIT_SIZE} of the audit)"


def _words(made: Counter[str]) -> str:
    shapes = Counter(shape_of(name) if (name := place.split(":")[0]) in MADE_FROM else name for place in made)
    return f"{len(made)} partitions ({', '.join(f'{n} of {shape}' for shape, n in sorted(shapes.items())) or 'none'})"


def _night(root: Path, asked: MockJudge, schedule: str, when: datetime) -> Counter[str]:
    command = [
        "faketime",
        when.strftime("%Y-%m-%d %H:%M:%S"),
        sys.executable,
        "-m",
        "benchmarks.week",
        schedule,
    ]
    done = subprocess.run(
        command,
        env=_environment(root, asked),
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-3000:])
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def _environment(root: Path, asked: MockJudge) -> dict[str, str]:
    of_judge = {
        name: value for name, value in asked.environment.items() if not name.startswith("AGENT_EVAL_")
    }
    return environment(root, TZ="UTC", **of_judge)


def tick(name: str) -> Counter[str]:
    """Evaluate a schedule now and execute what it requests; asset:partition → how often it was made."""
    from agent_eval.definitions import defs
    from agent_eval.defs.launch import dagster_home

    dagster_home(Path(os.environ["AGENT_EVAL_HOME"]))
    schedule = defs.resolve_schedule_def(name)
    with dg.DagsterInstance.get() as instance:
        before = _made(instance)
        now = datetime.now(UTC)
        context = dg.build_schedule_context(instance=instance, scheduled_execution_time=now)
        for request in schedule.evaluate_tick(context).run_requests or ():
            tags = {**request.tags, "dagster/schedule_name": name}
            job = defs.resolve_job_def(schedule.job_name)
            assert job.execute_in_process(instance=instance, run_config=request.run_config, tags=tags).success
        return _made(instance) - before


def _made(instance: dg.DagsterInstance) -> Counter[str]:
    counted: Counter[str] = Counter()
    for key in instance.all_asset_keys():
        for record in instance.fetch_materializations(key, limit=5000).records:
            counted[f"{key.path[-1]}:{record.partition_key or ''}"] += 1
    return counted


if __name__ == "__main__":
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")
    print(json.dumps(tick(sys.argv[1])))
