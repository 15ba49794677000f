"""Define the IO manager, which reads and writes the rows of asset partitions in the store."""

import contextlib
import os

import dagster as dg
import polars as pl
from pydantic import PrivateAttr

from agent_eval.defs.dagster_internals import log_materializations, release_outputs
from agent_eval.defs.observations import new_observations, observed, report
from agent_eval.defs.partitions import current_last, key_frame
from agent_eval.defs.resources import is_project_in_hand, project_of_run, scope_of_run
from agent_eval.formats.spill import Rows, frames_of
from agent_eval.project import Project
from agent_eval.project.fingerprints import Fingerprints, record_of
from agent_eval.storage import Store
from agent_eval.tables import table
from agent_eval.tables.schema import MADE_FROM

_KEPT_INPUT, _KEPT_INPUTS = 1 << 20, 16 << 20
"""Bytes of an input that is kept for the later steps of a run, and of all kept inputs together."""


class TableIO(dg.ConfigurableIOManager):
    """Store each asset's frame in the table with the same name; load only the rows of the requested partitions.

    Only one run uses the store at a time, from its first step to its last, as with `agent-eval run`: new rows
    are always computed from the latest ones. In a lake, runs on different agents or versions can be in progress
    at the same time. The lock is also released if the process is killed.

    Rows of a methodology version that was edited after it was frozen are neither loaded nor stored: an asset of that
    version fails before its body asks a judge, and its tables stay unchanged.
    """

    root: str | None = None
    _project: Project = PrivateAttr()
    _store: Store = PrivateAttr()
    _found: Fingerprints = PrivateAttr()
    _inputs: dict[tuple[str, ...], pl.DataFrame] = PrivateAttr(default_factory=dict)
    _turn: contextlib.ExitStack = PrivateAttr(default_factory=contextlib.ExitStack)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Wait for the store's lock for runs and record this run as its holder.

        The umask is set so that only the user can read the files that this process creates.
        """
        os.umask(0o077)
        self._inputs = {}
        self._store = Project.open(self.root).store
        run_id = context.run.run_id if context.run else ""
        self._turn.enter_context(self._store.run_section(scope_of_run(context), run_id))
        in_hand = project_of_run(self.root, context.run)  # reads the sources before any input is loaded
        if (
            context.instance is not None and not is_project_in_hand()
        ):  # the launcher has reported what it read
            report(context.instance, new_observations(in_hand.sources, observed(context.instance)))
        self._project = in_hand.project
        self._found = Fingerprints.of(self._project, in_hand.sources)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Record the spending on judges, and release the store's lock even if that fails."""
        with self._turn:
            if self._project.judges.own is not None:
                self._project.record_spending(run_id=context.run.run_id if context.run else "")

    def handle_output(self, context: dg.OutputContext, obj: Rows) -> None:
        """Replace the rows of the partitions, and report each with the fingerprint of its rows as data version.

        Raises:
            EditedVersionError: If a methodology version of the partitions was edited after it was frozen.
        """
        release_outputs(context)
        target = table(context.asset_key.path[-1])
        for key in [key for key in self._inputs if key[0] == target.name]:
            del self._inputs[key]
        if not context.has_asset_partitions:  # the table has no partitions, so rows are only added
            self._store.upsert(target, pl.concat(frames_of(obj)), run_id=context.run_id)
            return
        current = [m.version for m in self._project.registry.all() if m.status == "current"]
        keys = current_last(context.asset_partitions_def, context.asset_partition_keys, current[-1:])
        partitions = key_frame(context.asset_partitions_def, keys)
        self._refuse_edited(partitions)
        if target.partition:
            record = record_of(self._project, self._found, target.name, obj, partitions)
            self._store.replace(target, obj, partitions, run_id=context.run_id, record=record)
        else:
            added = pl.concat(frames_of(obj))
            # the fingerprint is that of all rows of the partitions, not of the added ones
            kept_rows = self._store.read(target, partitions).join(added, on=target.key, how="anti")
            all_rows = pl.concat([kept_rows, added.select(kept_rows.columns)])
            record = record_of(self._project, self._found, target.name, all_rows, partitions)
            self._store.upsert(target, added, run_id=context.run_id, record=record)
        versions = self._found.data_versions(target.name, partitions)
        log_materializations(context, dict(zip(keys, versions, strict=True)))

    def load_input(self, context: dg.InputContext) -> pl.DataFrame:
        """Read the rows of the partitions, or the part of them that the input requests.

        Raises:
            EditedVersionError: If a methodology version of the partitions was edited after it was frozen.
        """
        partitions = key_frame(context.asset_partitions_def, context.asset_partition_keys)
        self._refuse_edited(partitions)
        part = context.definition_metadata  # see `part_of`
        keys = partitions
        for name, values in part.get("values", {}).items():
            keys = keys.join(pl.DataFrame({name: values}), how="cross")
        target, columns = table(context.asset_key.path[-1]), part.get("columns", [])
        key = (target.name, str(columns), keys.write_json())
        if (cached_rows := self._inputs.get(key)) is not None:
            return cached_rows
        rows = self._store.read(target, keys, columns=columns)
        self._keep(key, rows)
        return rows

    def _keep(self, key: tuple[str, ...], rows: pl.DataFrame) -> None:
        """Keep a small input until the run writes its table: several steps read the same rows.

        Only tables that `handle_output` alone writes, and not in a lake, where another run may write meanwhile.
        """
        if key[0] not in MADE_FROM or self._store.is_shared:
            return
        size = rows.estimated_size()
        n_bytes_cached = sum(frame.estimated_size() for frame in self._inputs.values())
        if size <= _KEPT_INPUT and n_bytes_cached + size <= _KEPT_INPUTS:
            self._inputs[key] = rows

    def _refuse_edited(self, partitions: pl.DataFrame) -> None:
        if "methodology_version" in partitions.columns:
            self._project.registry.refuse_edited(set(partitions["methodology_version"]))
