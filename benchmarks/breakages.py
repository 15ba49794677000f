"""Random faults in the code, one at a time, that the tests should notice: by hand, minutes to hours.

`python -m benchmarks breakages` copies the repository, makes one breakage in the copy, runs the tests of its folder and,
if they pass, the whole suite, and puts the file back. A breakage negates a condition, exchanges an operator, empties a
return value or removes a statement. Variables:

- BREAKAGES (60) and BREAKAGES_SEED (38): how many are drawn from all places in `agent_eval`, and how.
- BREAKAGES_ROOM: only places below this path, e.g. `agent_eval/scores`.
- BREAKAGES_ONLY: only breakages whose number, as printed, is in this list.
- BREAKAGES_TESTS: a commit whose tests and benchmarks are used instead of those of this checkout.
- BREAKAGES_SUITE: arguments for the suite instead of `tests`; empty for the folder's tests alone.

Tests that fail without a breakage notice nothing: they are run first, and the rooms whose tests fail are named and left
out. A breakage that changes nothing that can be observed (a cache, an order that is sorted later) is not noticed either: read
the list of the missed ones.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER_LIMIT_S, SUITE_LIMIT_S = 900, 3600
_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}


class Breakage(NamedTuple):
    """One place of a file and what is written there instead."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {self.text!r}"


def breakages(path: str, source: str) -> list[Breakage]:
    """Return every breakage of a file, in the order of its text."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def made(node: ast.expr | ast.stmt, kind: str, text: str) -> Breakage:
        return Breakage(path, node.lineno, kind, *place(node), text)

    def text(node: ast.expr | ast.stmt) -> str:
        start, end = place(node)
        return data[start:end].decode()

    found: list[Breakage] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                found.append(made(test, "condition", f"(not ({text(test)}))"))
            case ast.comprehension(ifs=[test, *_]):
                found.append(made(test, "condition", f"(not ({text(test)}))"))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                found.append(made(node, "operator", f"({text(left)} {_COMPARED[type(op)]} {text(right)})"))
            case ast.BoolOp(op=joined, values=values):
                other = " or " if isinstance(joined, ast.And) else " and "
                found.append(made(node, "operator", f"({other.join(f'({text(v)})' for v in values)})"))
            case ast.BinOp(left=left, op=arithmetic, right=right) if type(arithmetic) in _COMPUTED:
                found.append(
                    made(node, "operator", f"(({text(left)}) {_COMPUTED[type(arithmetic)]} ({text(right)}))")
                )
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                found.append(made(value, "return", "None"))
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
                found.append(made(node, "removed", "pass"))
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                found.append(made(node, "removed", "pass"))
    return sorted(found, key=lambda b: (b.start, b.end, b.kind))


def drawn(n: int, seed: int, room: str) -> list[Breakage]:
    """Return `n` breakages of the package, drawn without replacement."""
    files = sorted((ROOT / "agent_eval").rglob("*.py"))
    places = [b for file in files for b in breakages(str(file.relative_to(ROOT)), file.read_text())]
    places = [b for b in places if b.path.startswith(room)]
    return random.Random(seed).sample(places, min(n, len(places)))


def copied(folder: Path, tests_at: str) -> Path:
    """Copy what git tracks or would track, with the tests of a commit if one is given."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).splitlines():
        if (ROOT / name).is_file() and not (tests_at and name.startswith(("tests/", "benchmarks/"))):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    if tests_at:
        archive = subprocess.check_output(["git", "archive", tests_at, "tests", "benchmarks"], cwd=ROOT)
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    shutil.copytree(ROOT / ".git", folder / ".git")  # some tests ask git
    return folder


def failure(folder: Path, arguments: list[str], limit_s: float) -> str | None:
    """Run tests in the copy and return the first that fails; None if all pass."""
    shared = ROOT.parent / "shared" / "data"
    env = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {} if "AGENT_EVAL_SHARED_DATA" in env else {"AGENT_EVAL_SHARED_DATA": str(shared)}
    command = [sys.executable, "-m", "pytest", "-x", "-n", "2", "-p", "no:cacheprovider", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as run:  # fmt: skip
        try:
            output, _ = run.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, 9)
            return "no end"
    if run.returncode in (0, 5):
        return None
    named = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ", "E  "))]
    return named[-1][:160] if named else output[-160:]


def measure() -> Iterator[str]:
    """Yield a line per breakage and one that counts them."""
    asked = os.environ.get
    n, seed = int(asked("BREAKAGES", "60")), int(asked("BREAKAGES_SEED", "38"))
    only = {int(number) for number in asked("BREAKAGES_ONLY", "").split(",") if number}
    suite = asked("BREAKAGES_SUITE", "tests").split()
    yield f"{n} breakages, seed {seed}"
    tried: list[int] = []
    missed: list[int] = []
    unsound: dict[str, str | None] = {}  # tests → the first that fails without a breakage
    with tempfile.TemporaryDirectory() as temporary:
        folder = copied(Path(temporary) / "copy", asked("BREAKAGES_TESTS", ""))
        for number, breakage in enumerate(drawn(n, seed, asked("BREAKAGES_ROOM", "agent_eval"))):
            if only and number not in only:
                continue
            room = Path("tests", *Path(breakage.path).parts[1:2])
            of_room = [str(room)] if (folder / room).is_dir() else []
            for tests in filter(None, (of_room, suite)):
                if (name := " ".join(tests)) not in unsound:
                    unsound[name] = failure(folder, tests, SUITE_LIMIT_S)
                    yield f"{name} without a breakage: {unsound[name] or 'passes'}"
            if any(unsound[" ".join(tests)] for tests in filter(None, (of_room, suite))):
                yield f"{number} {breakage} · NOT TRIED"
                continue
            file = folder / breakage.path
            data, began = file.read_bytes(), time.monotonic()
            file.write_bytes(data[: breakage.start] + breakage.text.encode() + data[breakage.end :])
            found, by = None, room.name
            if of_room:
                found = failure(folder, of_room, FOLDER_LIMIT_S)
            if found is None and suite:
                found, by = failure(folder, suite, SUITE_LIMIT_S), "suite"
            file.write_bytes(data)
            tried.append(number)
            missed += [] if found else [number]
            result = f"noticed by {by}: {found}" if found else "MISSED"
            yield f"{number} {breakage} · {time.monotonic() - began:.0f} s · {result}"
    yield f"missed: {len(missed)} of {len(tried)} that were tried: {missed}"
