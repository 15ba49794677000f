"""What the project uses of Dagster without a promise: in one module, and metadata shown as Dagster's own way shows it."""

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.context.system import StepExecutionContext
from dagster._core.storage import local_compute_log_manager

from agent_eval.defs import dagster_internals
from agent_eval.defs.dagster_internals import add_metadata_by_partition, leave_output, release_outputs
from tests.rooms import PACKAGE, imported, modules

KEYS = ["a", "b", "c"]


@pytest.mark.parametrize("is_kept_elsewhere", [False, True])
def test_each_partition_shows_its_own(monkeypatch: pytest.MonkeyPatch, *, is_kept_elsewhere: bool) -> None:
    days = dg.StaticPartitionsDefinition(KEYS)

    @dg.asset(partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run())
    def shown(context: dg.AssetExecutionContext) -> None:
        context.add_asset_metadata({"of": "all"})
        held = vars(context.get_step_execution_context())
        kept = held.pop("_metadata_accumulator")
        if is_kept_elsewhere:
            monkeypatch.setattr(StepExecutionContext, "_metadata_accumulator", None, raising=False)
            monkeypatch.setattr(StepExecutionContext, "add_asset_metadata", seen)
        else:
            held["_metadata_accumulator"] = kept
        add_metadata_by_partition(context, "shown", {key: {"key": key} for key in KEYS})
        held.setdefault("_metadata_accumulator", kept)

    asked: list[tuple[object, object]] = []

    def seen(self: object, metadata: object, asset_key: object = None, partition_key: object = None) -> None:
        asked.append((metadata, partition_key))

    with dg.DagsterInstance.ephemeral() as instance:
        tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"}
        result = dg.materialize([shown], instance=instance, tags=tags)
    if is_kept_elsewhere:
        assert asked == [({"key": key}, key) for key in KEYS]
        return
    made = result.asset_materializations_for_node("shown")
    found = [(m.partition, m.metadata["key"].value, m.metadata["of"].value) for m in made]
    assert sorted(found) == [(key, key, "all") for key in KEYS]


def private_names(path: Path) -> list[str]:
    """The dotted names below a private part of Dagster that a module imports, and private attributes that it names."""
    names = [name for name in imported(path) if name.startswith("dagster") and "._" in name]
    return names + ["_metadata_accumulator"] * ("_metadata_accumulator" in path.read_text(encoding="utf-8"))


def test_one_module_holds_every_private_name_of_dagster() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in modules() if private_names(path)}
    assert found == {"defs/dagster_internals.py"}


def test_a_name_that_is_loaded_on_use_is_the_one_that_type_checkers_see() -> None:
    module = ast.parse(Path(dagster_internals.__file__).read_text(encoding="utf-8"))
    (checked,) = [n for n in module.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    seen = {a.name: n.module for n in checked.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert seen == dagster_internals._LOADED_ON_USE
    for name in dagster_internals.__all__:
        assert getattr(dagster_internals, name) is not None
    unknown = "nonsense"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(dagster_internals, unknown)


@pytest.mark.parametrize("releases", [True, False])
def test_outputs_are_kept_until_a_run_ends_unless_they_are_released(*, releases: bool) -> None:
    class Kept(dg.IOManager):
        def handle_output(self, context: dg.OutputContext, obj: object) -> None:
            if releases:
                release_outputs(context)

        def load_input(self, context: dg.InputContext) -> object: ...

    @dg.op
    def made() -> int:
        return 7

    @dg.job(resource_defs={"io_manager": dg.IOManagerDefinition.hardcoded_io_manager(Kept())})
    def job() -> None:
        made()

    result = job.execute_in_process()
    if releases:
        with pytest.raises(dg.DagsterInvariantViolationError):
            result.output_for_node("made")
    else:
        assert result.output_for_node("made") == 7


@pytest.mark.parametrize("is_left", [False, True])
def test_output_of_runs_is_captured_unless_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_left: bool
) -> None:
    @dg.op
    def nothing() -> None: ...

    @dg.job(executor_def=dg.in_process_executor)
    def job() -> None:
        nothing()

    captured: list[str] = []

    @contextlib.contextmanager
    def copied(_: object, file: str) -> Iterator[None]:
        captured.append(file)
        yield

    monkeypatch.setattr(local_compute_log_manager, "mirror_stream_to_file", copied)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        if is_left:
            leave_output(instance)
        assert job.execute_in_process(instance=instance).success
    assert len(captured) == (0 if is_left else 2)
