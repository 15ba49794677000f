"""A real `dagster dev` for tests: started on a free port, driven through the API that the UI uses, stopped by its pid."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_eval.defs.ui.guard import kept_token
from benchmarks.warm import agent_eval

LOCATION = {"repositoryLocationName": "agent_eval.definitions", "repositoryName": "__repository__"}


@dataclass(frozen=True)
class Ui:
    """A running UI."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]
    home: Path  # DAGSTER_HOME

    @property
    def token(self) -> str:
        """The token that every request needs."""
        return kept_token(self.home)

    def ask(self, query: str, **variables: object) -> dict[str, Any]:
        """The data of a GraphQL answer; fails on errors."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            said = json.load(answer)
        assert "errors" not in said, said
        data: dict[str, Any] = said["data"]
        return data

    def backfill(self, assets: list[str]) -> str:
        """Start a backfill of all partitions of these assets; its id."""
        query = """mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {
            __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
        keys = [{"path": [name]} for name in assets]
        started = self.ask(query, p={"assetSelection": keys, "allPartitions": True})[
            "launchPartitionBackfill"
        ]
        assert started["__typename"] == "LaunchBackfillSuccess", started
        return str(started["backfillId"])

    def backfill_status(self, backfill: str) -> tuple[str, list[str]]:
        """Status of a backfill and of its runs."""
        query = """query($b: String!) { partitionBackfillOrError(backfillId: $b) { ... on PartitionBackfill {
            status error { message } runs(limit: 100) { status } } } }"""
        found = self.ask(query, b=backfill)["partitionBackfillOrError"]
        assert not found["error"], found
        return found["status"], [run["status"] for run in found["runs"]]

    def stop_sensor(self, name: str) -> None:
        """Switch a sensor off."""
        query = """query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor {
            sensorState { id } } } }"""
        state = self.ask(query, s=LOCATION | {"sensorName": name})["sensorOrError"]["sensorState"]["id"]
        query = "mutation($id: String!) { stopSensor(id: $id) { __typename } }"
        assert self.ask(query, id=state)["stopSensor"]["__typename"] == "StopSensorMutationResult"

    def start_schedule(self, name: str) -> None:
        """Switch a schedule on."""
        query = "mutation($s: ScheduleSelector!) { startSchedule(scheduleSelector: $s) { __typename } }"
        answer = self.ask(query, s=LOCATION | {"scheduleName": name})
        assert answer["startSchedule"]["__typename"] == "ScheduleStateResult", answer

    def reload(self) -> None:
        """Read the code and the settings of the project again."""
        answer = self.ask("mutation { reloadWorkspace { __typename } }")
        assert answer["reloadWorkspace"]["__typename"] == "Workspace", answer

    def events(self, *assets: str) -> dict[str, dict[str, int]]:
        """Asset → partition → how often it was made; of all assets if none is named."""
        query = """query($keys: [AssetKeyInput!]) { assetNodes(assetKeys: $keys) { assetKey { path } isMaterializable
            assetMaterializations(limit: 2000) { partition } } }"""
        keys = [{"path": [asset]} for asset in assets] or None
        counted: dict[str, dict[str, int]] = {}
        for node in self.ask(query, keys=keys)["assetNodes"]:
            if node["isMaterializable"]:
                of_asset = counted.setdefault(node["assetKey"]["path"][-1], {})
                for event in node["assetMaterializations"]:
                    of_asset[event["partition"]] = of_asset.get(event["partition"], 0) + 1
        return counted


def environment(root: Path, **more: str) -> dict[str, str]:
    """What a process on the project at `root` gets."""
    home = {
        "AGENT_EVAL_HOME": str(root),
        "DAGSTER_HOME": str(root / ".dagster"),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
    }
    return os.environ | home | more


def run_in_process(root: Path) -> str:
    """`agent-eval run` in a process of its own; what it printed."""
    done = agent_eval(root, "run", **environment(root))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def served(root: Path, **more: str) -> Iterator[Ui]:
    """`agent-eval ui` on the project at `root`, until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "agent_eval", "ui", "--port", str(port)]
    with (root / "ui.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=root, env=environment(root, **more), stdout=log, stderr=log, process_group=0
        )
    ui = Ui(port, root / "ui.log", process, root / ".dagster")
    try:
        eventually(lambda: process.poll() is not None or _answers(ui), "the UI answers", log=ui.log)
        assert process.poll() is None, ui.log.read_text()[-3000:]
        yield ui
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _answers(ui: Ui) -> bool:
    try:
        nodes = ui.ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return bool(nodes["repositoriesOrError"].get("nodes"))


def eventually(
    is_so: Callable[[], bool], what: str, *, seconds: float = 600, log: Path | None = None
) -> None:
    """Wait until it is so; fails with the end of the log."""
    end = time.monotonic() + seconds
    while not is_so():
        tail = log.read_text()[-3000:] if log and log.exists() else ""
        assert time.monotonic() < end, f"not within {seconds} s: {what}\n{tail}"
        time.sleep(1)
