"""Random faults in the code, one at a time, that the tests should notice: by hand, minutes to hours.

`python -m benchmarks breakages` copies the repository and runs the suite once in the copy, where each place that will be
broken records which tests come by. Then it makes one breakage at a time, runs the tests that came by and, if they pass
and the place was also reached while no test was called (a fixture, an import), the whole suite. A breakage negates a
condition, exchanges an operator, empties a return value or removes a statement. Variables:

- BREAKAGES (60) and BREAKAGES_SEED (38): how many are drawn from all places in `agent_eval`, and how.
- BREAKAGES_ROOM: only places below this path, e.g. `agent_eval/scores`.
- BREAKAGES_ONLY: only breakages whose number, as printed, is in this list.
- BREAKAGES_TESTS: a commit whose tests and benchmarks are used instead of those of this checkout.
- BREAKAGES_SUITE: arguments for the suite instead of `tests`; empty: the tests that come by alone.
- BREAKAGES_HITS: a file that keeps which tests come by; if it exists, the suite is not run before the breakages.

Tests that fail without a breakage notice nothing: they are named and left out. A breakage that changes nothing that can be
observed (a cache, an order that is sorted later) is not noticed either: read the list of the missed ones.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
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


_RECORDER = """
import os
_seen = set()
def hit(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if (number, test) not in _seen:
        _seen.add((number, test))
        with open({path!r}, "a") as file:
            file.write(f"{{number}}\\t{{test}}\\n")
    return True
"""


def recording(source: bytes, places: dict[int, Breakage]) -> bytes:
    """Return a file in which each place that will be broken records its number first."""
    inserted: list[tuple[int, int, str]] = []  # place, order, text
    for number, breakage in places.items():
        hit = f"__import__('agent_eval._hits', fromlist=['hit']).hit({number})"
        width = breakage.end - breakage.start
        if breakage.kind == "removed":
            inserted.append((breakage.start, -width, f"{hit}; "))
        else:
            inserted += [(breakage.start, -width, f"({hit}, ("), (breakage.end, width, "))[1]")]
    for place, _, text in sorted(inserted, reverse=True):
        source = source[:place] + text.encode() + source[place:]
    return source


def record(folder: Path, broken: dict[int, Breakage], suite: list[str], recorded: Path) -> None:
    """Run the suite and append to a file which test reaches which place, and in which phase."""
    recorded.touch()
    (folder / "agent_eval" / "_hits.py").write_text(_RECORDER.format(path=str(recorded)))
    sources = {path: (folder / path).read_bytes() for path in {b.path for b in broken.values()}}
    for path, source in sources.items():
        of_file = {n: b for n, b in broken.items() if b.path == path}
        try:
            compile(recording(source, of_file), path, "exec")
        except SyntaxError:  # within an f-string
            with recorded.open("a") as file:
                file.writelines(f"{number}\t\n" for number in of_file)
        else:
            (folder / path).write_bytes(recording(source, of_file))
    outcome(folder, suite, SUITE_LIMIT_S)
    for path, source in sources.items():
        (folder / path).write_bytes(source)
    (folder / "agent_eval" / "_hits.py").unlink()


def tests_that_come_by(recorded: Path) -> dict[int, set[str]]:
    """Return per breakage the tests that reach its place; "" stands for code that ran while no test was called."""
    tests: dict[int, set[str]] = defaultdict(set)
    for line in recorded.read_text().splitlines():
        number, test = line.split("\t", 1)
        name, _, phase = test.rpartition(" ")
        tests[int(number)] |= {name, *([""] if phase != "(call)" else [])}
    return tests


def outcome(folder: Path, arguments: list[str], limit_s: float) -> list[str] | None:
    """Run tests in the copy and return those that fail; None if they do not end."""
    shared = ROOT.parent / "shared" / "data"
    env = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {} if "AGENT_EVAL_SHARED_DATA" in env else {"AGENT_EVAL_SHARED_DATA": str(shared)}
    command = [sys.executable, "-m", "pytest", "-n", "2", "-rfE", "-p", "no:cacheprovider", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as run:  # fmt: skip
        try:
            output, _ = run.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, 9)
            return None
    if run.returncode == 0:
        return []
    failed = [
        line.split(" ", 1)[1].split(" - ")[0]
        for line in output.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    return failed or [f"nothing ran: {output[-160:]}"]


def named(folder: Path, recorded: dict[int, set[str]]) -> dict[int, list[str]]:
    """Return per breakage what pytest is called with: a test that it does not know by its name is replaced by its file.

    With one name that it does not know, pytest on several processes runs nothing. Tests that a test runs are left out.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "tests"]
    listed = subprocess.run(command, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout
    known = set(listed.splitlines()) - {""}
    return {
        number: sorted(
            {
                test if test in known else test.split("::")[0]
                for test in tests
                if test in known or test.startswith("tests/")
            }
        )
        for number, tests in recorded.items()
    }


def measure() -> Iterator[str]:
    """Yield a line per breakage and one that counts them."""
    asked = os.environ.get
    n, seed = int(asked("BREAKAGES", "60")), int(asked("BREAKAGES_SEED", "38"))
    only = {int(number) for number in asked("BREAKAGES_ONLY", "").split(",") if number}
    suite = asked("BREAKAGES_SUITE", "tests").split()
    yield f"{n} breakages, seed {seed}"
    missed: list[int] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = copied(Path(temporary) / "copy", asked("BREAKAGES_TESTS", ""))
        drawn_ones = enumerate(drawn(n, seed, asked("BREAKAGES_ROOM", "agent_eval")))
        broken = {number: breakage for number, breakage in drawn_ones if not only or number in only}
        recorded = Path(asked("BREAKAGES_HITS") or folder.parent / "hits")
        failing: list[str] = []
        if not recorded.exists():
            failing = outcome(folder, suite, SUITE_LIMIT_S) or []
            yield f"fail without a breakage, left out: {failing}"
            record(folder, broken, suite, recorded)
        left_out = [f"--deselect={test}" for test in failing]
        tests = tests_that_come_by(recorded)
        arguments = named(folder, {number: tests[number] - {*failing} for number in broken})
        for number, breakage in broken.items():
            file = folder / breakage.path
            data, began = file.read_bytes(), time.monotonic()
            file.write_bytes(data[: breakage.start] + breakage.text.encode() + data[breakage.end :])
            room = f"tests/{breakage.path.split('/')[1]}/"
            near = [test for test in arguments[number] if test.startswith(room)]
            far = [test for test in arguments[number] if not test.startswith(room)]
            result: list[str] | None = []
            for group in (near, far):  # those of its own folder take seconds
                if result == [] and group:
                    result = outcome(folder, ["-x", *group], FOLDER_LIMIT_S)
            if result == [] and "" in tests[number] and suite:
                result = outcome(folder, ["-x", *left_out, *suite], SUITE_LIMIT_S)
            file.write_bytes(data)
            missed += [number] if result == [] else []
            answer = (
                "MISSED" if result == [] else f"noticed: {'no end' if result is None else result[0][:160]}"
            )
            yield f"{number} {breakage} · {len(arguments[number])} tests · {time.monotonic() - began:.0f} s · {answer}"
    yield f"missed: {len(missed)} of {len(broken)} that were tried: {missed}"
