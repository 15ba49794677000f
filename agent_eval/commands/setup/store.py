"""Implement `agent-eval store`: create, check, compact and copy the lake of a project."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from agent_eval.errors import ConfigurationError
from agent_eval.formats.plain_text import count_of
from agent_eval.project import Project
from agent_eval.project.audits import merge_answers
from agent_eval.project.beside_store import BesideStore, FilesBesideStore
from agent_eval.project.data_versions import read_sources
from agent_eval.project.fingerprints import Fingerprints, damaged_partitions
from agent_eval.settings.lake import LakeSettings
from agent_eval.storage import Store
from agent_eval.storage.ledger import ledger_of

if TYPE_CHECKING:
    from agent_eval.storage.lake import LakeStore
    from agent_eval.storage.lake.upkeep import Checked


def init(project: Project, out: Console) -> None:
    """Create the lake that is configured in the settings; if it exists, it is not changed.

    Raises:
        StoreError: If the catalog cannot be used, or the folder belongs to another lake.
    """
    lake = _lake(project)
    from agent_eval.storage.lake.upkeep import initialise

    state = "was created" if initialise(lake) else "already exists"
    _say(out, f"The lake {state}: catalog {lake.given}, data folder {lake.data}.")


def check(project: Project, out: Console) -> int:
    """Read the whole lake, print the number of rows and all problems, and return the exit code.

    Raises:
        StoreError: If the lake cannot be opened.
    """
    lake = _lake(project)
    from agent_eval.storage.lake.upkeep import check as check_lake

    report = check_lake(lake)
    problems = [*report.problems, *_other_rows(project, report, out)]
    for problem in problems:
        _say(out, problem)
    n_problems = f"{len(problems)} problem{'s' * (len(problems) != 1)}"
    _say(out, f"{count_of(sum(report.rows.values()), 'row')} of {len(report.rows)} tables; {n_problems}.")
    return int(bool(problems))


def _other_rows(project: Project, report: "Checked", out: Console) -> list[str]:
    """Return a sentence for each partition of a readable table whose rows are not those that were stored.

    Partitions that differ are read again, because another worker may have stored them between two reads.
    """
    files = report.files
    if report.n_unrecorded:
        unrecorded = count_of(report.n_unrecorded, "file")
        _say(out, f"{unrecorded} without a checksum, which `agent-eval store compact` records; only read.")
    if "run_state" not in report.rows:
        return []
    try:
        marks = _fingerprints(project) if "run_state" in files else None
    except Exception:  # of any kind: it reads what may be damaged
        if not report.problems:
            raise
        marks = None
    if marks is None:
        _say(
            out, "Rows are not compared with their fingerprints, because a table that this needs is damaged."
        )
        return []
    damaged = set(damaged_partitions(project, marks, files))
    if damaged:
        again = _fingerprints(project)
        tables = {name for name, *_ in damaged}
        unchanged = {place for place in damaged if again.stored.get(place) == marks.stored[place]}
        damaged = unchanged & set(damaged_partitions(project, again, tables))
    if n_stale := sum(place[0] in files and marks.is_changed(place) for place in marks.stored):
        _say(
            out,
            f"{count_of(n_stale, 'partition')} not compared with fingerprints, because the next run computes them.",
        )
    return [
        f"Table {name}: the rows of {' under '.join(filter(None, partition))} are not those that were stored, so a file of "
        f"the table is damaged ({', '.join(map(str, files[name])) or 'the catalog'}); restore it from a backup."
        for name, *partition in sorted(damaged, key=str)
    ]


def _fingerprints(project: Project) -> Fingerprints:
    return Fingerprints.of(project, read_sources(project, project.known_agents(), project.registry.versions))


def compact(project: Project, out: Console) -> None:
    """Merge small files of the lake and remove unused ones.

    Raises:
        StoreError: If the lake cannot be opened or changed.
    """
    lake = _lake(project)
    from agent_eval.storage.lake.upkeep import compact as compact_lake

    before, after = compact_lake(lake)
    later = (
        "Replaced files are removed by a later `agent-eval store compact`, an hour from now at the earliest."
    )
    _say(out, f"{count_of(before, 'file')} before, {after:,} after. {later}")


def copy(project: Project, out: Console, *, source: Path | None, target: Path | None) -> None:
    """Copy a store file into the lake, or the lake into a new store file, including unmerged answers and the ledger.

    Raises:
        ConfigurationError: If neither or both of source and target are given.
        StorageError: If the copy would lose rows.
        StoreError: If one of the stores cannot be opened.
    """
    lake = _lake(project)
    from agent_eval.storage.lake.copying import copy_into_lake, copy_out_of_lake

    if (source is None) == (target is None):
        raise ConfigurationError("Use either --from FILE to fill the lake or --to FILE to copy it.")
    if source is not None:
        of_file = FilesBesideStore(Store.at(source), source)
        rows, place = copy_into_lake(source, lake, partial(_merge, of_file)), lake.attach
    elif target is not None:
        rows = copy_out_of_lake(lake, target, partial(_merge, project.beside_store))
        place = f"{target} (ledger of judge calls: {ledger_of(target)})"
    _say(out, f"{count_of(sum(rows.values()), 'row')} of {len(rows)} tables copied to {place}.")


def _merge(beside: BesideStore) -> None:
    beside.merge()
    merge_answers(beside, run_id="audit")


def _lake(project: Project) -> "LakeStore":
    """Return the lake that is configured in the settings.

    Raises:
        ConfigurationError: If the store is a file.
    """
    if not isinstance(project.settings.store, LakeSettings):
        raise ConfigurationError(
            f"The store is the file {project.store.attach}, which the first run creates; `agent-eval store backup` copies it. For "
            "several workers write a table [store] into agent_eval.toml: docs/howto/use-several-workers.md."
        )
    from agent_eval.storage.lake import LakeStore

    store = project.store
    assert isinstance(store, LakeStore)
    return store


def _say(out: Console, sentence: str) -> None:
    out.print(sentence, markup=False, soft_wrap=True)
