"""Load all methodology versions: those of the package and those in the user's folder.

An invalid file is reported with file, line and reason; the other files are still read.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from agent_eval.errors import ArgumentError, ConfigurationError, NotFoundError
from agent_eval.formats.yaml import Document, YamlError, read_document
from agent_eval.methodology.models import DRAFT_MARK, Methodology, Version

PACKAGED = Path(__file__).parent / "versions"
PACKAGED_RECORD = Path(__file__).parent / "published.yaml"
RECORD = "published.yaml"
MAX_BYTES = 2_000_000
SHOWN_ERRORS = 5
SHOWN_LETTERS = 40  # maximum characters of a key shown from an untrusted file

_REVERT = "undo the change, or publish it as a new version in a new file"

_OF_EARLIER_RELEASES = {
    "1.0.0": "7550a63038ffbf988c97ddd26348f550",
    "1.1.0": "d4356a8579ded04cdaf8fbe00956721b",
    "1.2.0": "83fc7d837a0fc4e6d5aeca19550ca68f",
    "1.3.0": "db4b08be7eb25b0ec3d10a234b27d3db",
}
"""Hashes of the packaged versions when they covered the references, as in boards that earlier releases stored."""
Scored = Mapping[str, Collection[str]]
"""Content hashes that the store has scores under, by version."""

_RECORD_HEADER = """\
# Content hashes of published methodology versions. A published version never changes: publish a new one instead.
# Written by `agent-eval methodology validate --freeze`, which adds lines and changes none.
"""


@dataclass(frozen=True)
class MethodologyProblem:
    """Describe a problem in one file: its location and reason.

    `line` is 1-based, or None if the problem does not belong to a single line. `version` is set if the problem
    concerns a specific version.
    """

    file: str
    reason: str
    line: int | None = None
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


class EditedVersionError(ConfigurationError):
    """Raised when a version was edited after it was frozen.

    Fix: Restore the file, or publish the change as a new version.
    """

    def __init__(self, problem: MethodologyProblem) -> None:
        super().__init__(
            f"Methodology {problem.reason} ({problem.file}). Nothing was scored; its boards are unchanged."
        )


class MethodologyFileError(ConfigurationError):
    """Raised when a required methodology file cannot be read or written, or no version is current.

    Fix: Correct the file that the message names; one version must be current.
    """


@dataclass(frozen=True)
class Registry:
    """Hold the methodology versions in semantic order, and the problems of unreadable files.

    `recorded` maps a version to the hash that was frozen on publication, and to the file that records the hash.
    `scored` returns the hashes under which the project has scores: they freeze a version too, whatever its record says.
    `own` lists the versions from the user's folder. At most one of the versions returned by `read` is current;
    `place_problems` lists the files that leave open which version supersedes which.
    """

    methodologies: tuple[Methodology, ...]
    problems: tuple[MethodologyProblem, ...] = ()
    recorded: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    own: frozenset[str] = frozenset()
    place_problems: tuple[MethodologyProblem, ...] = ()
    scored: Callable[[], Scored] = dict[str, Collection[str]]

    @classmethod
    def read(
        cls, own: Path | None = None, scored: Callable[[], Scored] = dict[str, Collection[str]]
    ) -> "Registry":
        """Read the packaged versions and, if the folder `own` exists, the versions in it."""
        packaged = _packaged()
        own_versions, problems = _read_own(own, packaged) if own else ((), ())
        record, record_problems = _read_record(own / RECORD) if own else ({}, ())
        packaged_record, packaged_problems = _read_record(PACKAGED_RECORD)
        declared = sorted((*packaged.values(), *own_versions), key=lambda m: m.order)
        return cls(
            methodologies=in_their_places(declared),
            problems=(*packaged_problems, *problems, *record_problems),
            recorded={
                **{v: (h, str(own / RECORD)) for v, h in record.items() if own},
                **{v: (h, str(PACKAGED_RECORD)) for v, h in packaged_record.items()},
            },
            own=frozenset(m.version for m in own_versions),
            place_problems=tuple(_place_problems(declared, own)),
            scored=scored,
        )

    @property
    def versions(self) -> tuple[str, ...]:
        """Return all versions in semantic order: 1.10.0 comes after 1.2.0."""
        return tuple(m.version for m in self.methodologies)

    @property
    def current(self) -> Methodology:
        """Return the version with the status current, or the highest one if several have it.

        Raises:
            MethodologyFileError: If no version is current.
        """
        current = [m for m in self.methodologies if m.status == "current"]
        if not current:
            raise MethodologyFileError(
                "No methodology has the status 'current'. Set `status: current` in the file of one version."
            )
        return current[-1]

    def all(self) -> tuple[Methodology, ...]:
        """Return all methodologies in semantic order of their versions."""
        return self.methodologies

    def get(self, version: str) -> Methodology:
        """Return the methodology of a version.

        Raises:
            ArgumentError: If the version is not a string.
            NotFoundError: If the version does not exist, or its file cannot be read.
        """
        if not isinstance(version, str):
            raise ArgumentError("version", version, "a version such as '1.3.0'")
        methodology = next((m for m in self.methodologies if m.version == version), None)
        if methodology is None:
            problem = next((p for p in self.problems if Path(p.file).name == f"{version}.yaml"), None)
            what = f"cannot be read: {problem}" if problem else "is not published"
            fix = "Fix that file" if problem else f"To publish it, add data/methodologies/{version[:64]}.yaml"
            raise NotFoundError(
                f"Methodology {version[:64]!r} {what}. Published: {', '.join(self.versions)}. {fix}."
            )
        return methodology

    def frozen_problems(self) -> tuple[MethodologyProblem, ...]:
        """Return the problems of published versions that are edited, missing or, if packaged, not recorded.

        A version in the user's folder that is not recorded yet is not a problem: `freeze` records it.
        """
        version_models = {m.version: m for m in self.methodologies}
        unread = {Path(p.file).name for p in self.problems}  # their problems are reported by `edited`
        gone = (
            MethodologyProblem(
                file, f"{v} was published, but its file is missing; restore {v}.yaml", version=v
            )
            for v, (_, file) in self.recorded.items()
            if v not in version_models and f"{v}.yaml" not in unread
        )
        unrecorded = (
            MethodologyProblem(
                str(PACKAGED_RECORD), f"{v} is not recorded; add its hash {m.content_hash}", version=v
            )
            for v, m in version_models.items()
            if v not in self.recorded and v not in self.own
        )
        return (*self.edited().values(), *gone, *unrecorded)

    def edited(self) -> dict[str, MethodologyProblem]:
        """Return, by version, the problems of frozen versions that are unreadable or were edited.

        A version was edited if its content differs from its record, or from the content that scores in the project were
        computed with. A draft is not frozen, unless scores were computed with it before it was one.
        """
        return dict(self._edited)

    @cached_property
    def _edited(self) -> dict[str, MethodologyProblem]:
        """Cache the result of `edited`, because every write needs it and hashing all versions takes milliseconds."""
        version_models = {m.version: m for m in self.methodologies}
        unread = {Path(p.file).stem: p for p in self.problems}
        problems: dict[str, MethodologyProblem] = {}
        for version, (recorded, file) in self.recorded.items():
            if (m := version_models.get(version)) is None:
                if (problem := unread.get(version)) is not None:
                    reason = f"{version} was published, but its file cannot be read now: {problem.reason}"
                    problems[version] = MethodologyProblem(problem.file, reason, problem.line, version)
            elif recorded not in (m.content_hash, m.earlier_content_hash):
                problems[version] = MethodologyProblem(file, _changed(m, recorded), version=version)
        for version, stored in self.scored().items():
            hashes = [one for one in stored if not one.startswith(DRAFT_MARK)]
            if (m := version_models.get(version)) is None or version in problems or not hashes:
                continue
            accepted = {m.content_hash, m.earlier_content_hash, _OF_EARLIER_RELEASES.get(version)}
            if not accepted & {*hashes}:
                file = self.recorded.get(version, ("", f"{version}.yaml"))[1]
                reason = _changed(m, min(hashes), "scored in this project")
                problems[version] = MethodologyProblem(file, reason, version=version)
        return problems

    @property
    def frozen(self) -> frozenset[str]:
        """Return the versions whose content must not change: those that are recorded or were edited after scoring."""
        return frozenset({*self.recorded, *self.edited()})

    def unreadable(self) -> dict[str, MethodologyProblem]:
        """Return, by version, the problems of unreadable frozen versions. Any of them could be the current one."""
        readable = {m.version for m in self.methodologies}
        return {version: problem for version, problem in self.edited().items() if version not in readable}

    def refuse_edited(self, versions: Collection[str]) -> None:
        """Raise if any of `versions` was edited after it was frozen, so that it is not used for scoring.

        An unreadable frozen version always raises: it could be the current version or supersede another one.

        Raises:
            EditedVersionError: If a version was edited or is unreadable; the message describes the lowest one.
        """
        edited = self.edited()
        refused = edited.keys() & set(versions) | self.unreadable().keys()
        for version in sorted(refused, key=Version.parse):
            raise EditedVersionError(edited[version])


def load(version: str, own: Path | None = None) -> Methodology:
    """Return the methodology of a version, e.g. '1.3.0'.

    Args:
        version: The version.
        own: The user's folder of versions (data/methodologies of a project). By default, only packaged versions are
            known.

    Raises:
        NotFoundError: If the version does not exist, or its file cannot be read.
    """
    if (packaged := _packaged().get(version)) is not None:
        return packaged  # a user's file cannot override it
    return Registry.read(own).get(version)


def version_names(own: Path | None = None) -> tuple[str, ...]:
    """Return all versions in semantic order, read from the file names only; invalid files are included."""
    files = _version_files(PACKAGED)
    with suppress(OSError):  # reported by `Registry.read`
        files += _version_files(own) if own else []
    names = {f.stem for f in files if f.suffix == ".yaml" and _is_version(f.stem)}
    return tuple(sorted(names, key=Version.parse))


def freeze(own: Path) -> tuple[str, ...]:
    """Record the hashes of the user's versions that are not recorded yet, except drafts.

    A recorded hash is never changed, so freezing twice adds nothing.

    Returns:
        The versions whose hashes were added, in semantic order.

    Raises:
        MethodologyFileError: If the folder's published.yaml cannot be read or written.
    """
    path = own / RECORD
    recorded, problems = _read_record(path)
    if problems:
        raise MethodologyFileError(f"{problems[0]}. Fix it first; nothing was written.")
    versions, _ = _read_own(own, _packaged())
    new = {m.version: m.content_hash for m in versions if m.version not in recorded and m.status != "draft"}
    if new:
        _write_record(path, recorded | new)
    return tuple(sorted(new, key=Version.parse))


def in_their_places(declared: Sequence[Methodology]) -> tuple[Methodology, ...]:
    """Return the versions in semantic order, with at most one of them current.

    A version that another one names in `supersedes` becomes superseded. If several versions would still be current,
    the highest one stays current and supersedes the others. Drafts do not supersede other versions.
    """
    ordered = sorted(declared, key=lambda m: m.order)
    declared_successors = {m.supersedes: m.version for m in ordered if m.supersedes and m.status != "draft"}
    current = [m.version for m in ordered if m.status == "current" and m.version not in declared_successors]
    successors = dict.fromkeys(current[:-1], current[-1] if current else None) | declared_successors
    return tuple(
        m.model_copy(update={"status": "superseded", "superseded_by": successors[m.version]})
        if m.status == "current" and m.version in successors
        else m
        for m in ordered
    )


def _place_problems(declared: Sequence[Methodology], own: Path | None) -> Iterator[MethodologyProblem]:
    """Yield a problem for each file that names an unknown version or leaves the current version undetermined."""
    versions = {m.version for m in declared}
    files = {m.version: str((own or PACKAGED) / f"{m.version}.yaml") for m in declared}
    for m in declared:
        if m.supersedes is not None and m.supersedes not in versions:
            reason = f"supersedes {m.supersedes}, which does not exist. Versions: {', '.join(m.version for m in declared)}"
            yield MethodologyProblem(files[m.version], reason, version=m.version)
    superseded_versions = {m.supersedes for m in declared if m.status != "draft"}
    current = [m.version for m in declared if m.status == "current" and m.version not in superseded_versions]
    if not current:
        yield MethodologyProblem(
            files[declared[-1].version],
            "no version is current; set `status: current` in the file of one version",
        )
    for lower, higher in pairwise(current):
        yield MethodologyProblem(
            files[higher],
            f'{lower} is current as well, and {current[-1]} is used; add `supersedes: "{lower}"` to {higher}.yaml',
            version=higher,
        )


def _changed(m: Methodology, recorded: str, was: str = "published") -> str:
    return f"{m.version} was {was} with hash {recorded}, but its content now has hash {m.content_hash}; {_REVERT}"


@cache
def _packaged() -> Mapping[str, Methodology]:
    read = [_read_version(path) for path in _version_files(PACKAGED)]
    if broken := [r for r in read if isinstance(r, MethodologyProblem)]:
        raise MethodologyFileError(f"{broken[0]}. The installation is damaged; reinstall agent-eval.")
    return {m.version: m for m in read if isinstance(m, Methodology)}


def _read_own(
    own: Path, packaged: Mapping[str, Methodology]
) -> tuple[tuple[Methodology, ...], tuple[MethodologyProblem, ...]]:
    if (own.exists() or own.is_symlink()) and not own.is_dir():
        return (), (
            MethodologyProblem(str(own), "is not a folder; methodology versions are files in a folder"),
        )
    own_versions: list[Methodology] = []
    problems: list[MethodologyProblem] = []
    try:
        files = _version_files(own)
    except OSError as error:
        return (), (MethodologyProblem(str(own), f"cannot be read: {error.strerror or error}"),)
    for path in files:
        read = _read_version(path, data_folder=own.parent)
        if isinstance(read, MethodologyProblem):
            problems.append(read)
        elif read.version not in packaged:
            own_versions.append(read)
        elif read.content_hash != packaged[read.version].content_hash:
            problems.append(
                MethodologyProblem(
                    str(path), f"version {read.version} is published with different content. {_REVERT}"
                )
            )
    return tuple(own_versions), tuple(problems)


def _version_files(folder: Path) -> list[Path]:
    """Return the YAML files of a folder, except hidden files and the record; an empty list if there is no folder."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in {".yaml", ".yml"} and path.name != RECORD and not path.name.startswith(".")
    )


def _is_version(text: str) -> bool:
    try:
        Version.parse(text)
    except ValueError:
        return False
    return True


def _read_version(path: Path, data_folder: Path | None = None) -> Methodology | MethodologyProblem:
    """Return the methodology in a file, or the problem with it. Links to paths outside `data_folder` are rejected."""
    if data_folder and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(data_folder)):
        return MethodologyProblem(
            str(path), "is a link that leads out of the data folder; replace it with the file"
        )
    document = _read_document(path)
    if isinstance(document, MethodologyProblem):
        return document
    if not isinstance(document.value, dict):
        return MethodologyProblem(
            str(path), "is not a mapping; copy the file of a published version and change it"
        )
    try:
        methodology = Methodology.model_validate(document.value)
    except ValidationError as error:
        return _invalid(path, document, error)
    if path.name != f"{methodology.version}.yaml":
        reason = f"holds version {methodology.version}; rename the file to {methodology.version}.yaml"
        return MethodologyProblem(str(path), reason, document.line_of(("version",)))
    return methodology


def _read_document(path: Path) -> Document | MethodologyProblem:
    name = str(path)
    try:
        if not path.is_file():
            return MethodologyProblem(name, "is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return MethodologyProblem(name, f"cannot be read: {error.strerror or error}")
    if len(data) > MAX_BYTES:
        return MethodologyProblem(name, f"is larger than {MAX_BYTES:,} bytes; a version has about 40,000")
    try:
        return read_document(data.decode("utf-8-sig"), "text", allow_aliases=True)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return MethodologyProblem(
            name, f"is not UTF-8 (byte 0x{data[error.start]:02x}); save it as UTF-8", line
        )
    except YamlError as error:
        return MethodologyProblem(name, error.reason, error.line or None)


def _invalid(path: Path, document: Document, error: ValidationError) -> MethodologyProblem:
    """Return a problem that lists the first SHOWN_ERRORS validation errors, with the line of the first one."""
    details = error.errors(include_url=False, include_input=False)
    reasons = [_reason(detail) for detail in details[:SHOWN_ERRORS]]
    if (more := len(details) - SHOWN_ERRORS) > 0:
        reasons.append(f"and {more} more")
    return MethodologyProblem(str(path), "; ".join(reasons), document.line_of(details[0]["loc"]))


def _reason(detail: ErrorDetails) -> str:
    key = ".".join(str(part)[:SHOWN_LETTERS] for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key; remove it or correct its name"
    message = detail["msg"].removeprefix("Value error, ")[: 10 * SHOWN_LETTERS]
    return f"{key}: {message}" if key else message


def _read_record(path: Path) -> tuple[dict[str, str], tuple[MethodologyProblem, ...]]:
    """Return the frozen hash of each version and the problems found; both are empty if the file does not exist."""
    if not path.exists():
        return {}, ()
    document = _read_document(path)
    if isinstance(document, MethodologyProblem):
        return {}, (document,)
    entries = document.value if document.value is not None else {}
    if not isinstance(entries, dict):
        return {}, (MethodologyProblem(str(path), 'expected lines of the form `"1.4.0": hash`'),)
    good = {v: h for v, h in entries.items() if _is_version(v) and isinstance(h, str)}
    problems = (
        MethodologyProblem(str(path), f"{v!r}: expected a version and its hash", document.line_of((v,)))
        for v in entries
        if v not in good
    )
    return good, tuple(problems)


def _write_record(path: Path, hashes: Mapping[str, str]) -> None:
    """Replace the file atomically, so that a crash leaves the old file intact."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(_RECORD_HEADER + "".join(_record_lines(hashes)), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise MethodologyFileError(f"{path} cannot be written: {error.strerror or error}.") from error


def _record_lines(hashes: Mapping[str, str]) -> Iterable[str]:
    return (f'"{v}": {hashes[v]}\n' for v in sorted(hashes, key=Version.parse))
