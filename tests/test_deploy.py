"""The files of deploy/ fit each other, Dagster's schema and the settings; containers are not run here."""

import configparser
import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._config import process_config, resolve_to_config_type
from dagster._core.instance.config import dagster_instance_config
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
from dagster._core.workspace.load_target import WorkspaceFileTarget

from agent_eval.settings.lake import LakeSettings
from tests.conftest import REPOSITORY
from tests.test_constraints import pins

DEPLOY = REPOSITORY / "deploy"
ENVIRONMENT = re.compile(r"\{env: (\w+)\}")


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.mark.parametrize("name", ["celery.yaml", "kubernetes.yaml"])
def test_dagster_accepts_the_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in ENVIRONMENT.findall((DEPLOY / name).read_text()):
        monkeypatch.setenv(variable, "x")
    shutil.copyfile(DEPLOY / name, tmp_path / "dagster.yaml")
    instance, _ = dagster_instance_config(str(tmp_path))
    launcher = instance["run_launcher"]
    try:
        module = importlib.import_module(launcher["module"])
    except ImportError:
        return  # the launcher's own settings are checked where the extra `cluster` is installed
    schema = resolve_to_config_type(getattr(module, launcher["class"]).config_type())
    assert process_config(schema, launcher["config"]).errors in (None, [])


def test_celery_knows_the_settings_of_launcher_and_workers() -> None:
    defaults = pytest.importorskip("celery.app.defaults")  # of the extra `cluster`
    settings = dict(defaults.flatten(defaults.NAMESPACES))
    of_launcher = read("celery.yaml")["run_launcher"]["config"]["config_source"]
    of_workers = read("worker.yaml")["execution"]["config"]["config_source"]
    assert of_launcher.keys() | of_workers.keys() <= settings.keys()
    assert of_workers["worker_disable_prefetch"] is True


def test_celery_reads_the_password_of_the_broker_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """dagster-celery writes the address that the files name to a file in DAGSTER_HOME."""
    addresses = dict.fromkeys(("broker", "backend"), "redis://h/0")
    app = pytest.importorskip("dagster_celery.make_app").make_app(addresses)
    said = (DEPLOY / "celery.yaml").read_text()
    for variable in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"):
        assert variable in said
        monkeypatch.setenv(variable, "redis://:S3cret@h/0")
    assert app.conf.broker_url == app.conf.result_backend == "redis://:S3cret@h/0"


def test_every_service_has_the_variables_that_its_files_read() -> None:
    services = read("compose.yaml")["services"]
    texts = [(DEPLOY / f"{name}.yaml").read_text() for name in ("celery", "worker", "workspace")]
    needed = set(ENVIRONMENT.findall("".join(texts)))
    for name in ("init", "code", "web", "daemon", "worker"):
        assert needed | {"PGPASSWORD"} <= services[name]["environment"].keys()
    assert services["redis"]["command"] == ["redis-server", "--appendonly", "yes"]


def test_the_units_start_the_commands_of_the_how_to_and_again_when_they_end() -> None:
    page = (REPOSITORY / "docs" / "howto" / "use-several-workers.md").read_text()
    commands = next(
        b for b in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "grpc" in b
    )
    found = []
    for name in ("code", "web", "daemon", "worker"):
        unit = configparser.ConfigParser(strict=True)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string((DEPLOY / f"agent-eval-{name}.service").read_text())
        service = unit["Service"]
        found.append(re.sub(r"\$\{(\w+)\}", r"$\1", service["ExecStart"].removeprefix("/srv/venv/bin/")))
        assert (service["Restart"], service["EnvironmentFile"]) == ("always", "/etc/evals.env")
        assert unit["Unit"]["StartLimitIntervalSec"] == "0"  # also after an hour without the database
    assert found == commands.replace('"', "").splitlines()


def test_the_pods_of_runs_have_the_variables_that_their_instance_reads() -> None:
    """Dagster reads {env: …} again in each process."""
    needed = set(ENVIRONMENT.findall((DEPLOY / "kubernetes.yaml").read_text()))
    passed = set(read("kubernetes.yaml")["run_launcher"]["config"]["env_vars"])
    assert needed - passed == {"DAGSTER_PG_PASSWORD"}  # of the secret
    home = read("helm-values.yaml")["global"]["dagsterHome"]
    # writable: `agent-eval run` has a lock there
    assert f"mkdir -p {home}" in (DEPLOY / "Dockerfile").read_text()


def test_web_server_and_daemon_find_the_code_server(monkeypatch: pytest.MonkeyPatch) -> None:
    services = read("compose.yaml")["services"]
    monkeypatch.setenv("AGENT_EVAL_CODE_HOST", services["web"]["environment"]["AGENT_EVAL_CODE_HOST"])
    (origin,) = WorkspaceFileTarget([str(DEPLOY / "workspace.yaml")]).create_origins()
    assert isinstance(origin, GrpcServerCodeLocationOrigin)
    assert origin.host in services
    command = services[origin.host]["command"]
    assert command[command.index("-p") + 1] == str(origin.port)
    assert command[command.index("-m") + 1] == origin.location_name
    assert "agent_eval.defs.ui.webserver" in services["web"]["command"]  # with the guard and the report
    for name in ("web", "daemon"):
        assert services[name]["depends_on"] == {origin.host: {"condition": "service_healthy"}}


def test_the_lake_of_compose_and_helm_is_a_valid_setting_in_a_mounted_folder() -> None:
    web = read("compose.yaml")["services"]["web"]
    code = read("helm-values.yaml")["dagster-user-deployments"]["deployments"][0]
    of_helm = next(variable["value"] for variable in code["env"] if variable["name"] == "AGENT_EVAL_STORE")
    mounted = {volume.split(":")[1] for volume in web["volumes"]}
    of_pods = {mount["mountPath"] for mount in code["volumeMounts"]}
    for given, folders in ((web["environment"]["AGENT_EVAL_STORE"], mounted), (of_helm, of_pods)):
        assert str(LakeSettings(**json.loads(given)).data) in folders


def test_the_image_copies_files_that_exist_and_pins_what_no_constraint_pins() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = " ".join(re.findall(r"^COPY (.+) \S+$", text, flags=re.MULTILINE)).split()
    assert [word for word in copied if not (REPOSITORY / word).exists()] == []
    of_project = {REPOSITORY / "data", REPOSITORY}  # they may contain a store and its secret
    assert of_project.isdisjoint(REPOSITORY / word for word in copied)
    versions = set(re.findall(r"dagster-k8s==(\S+)", text))
    assert versions == {pins("constraints-cluster.txt")["dagster-postgres"]}
