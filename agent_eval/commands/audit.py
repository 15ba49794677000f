"""`agent-eval audit`: ask the judge models a fixed sample again."""

from rich.console import Console
from rich.text import Text

from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable, signed
from agent_eval.project import Project
from agent_eval.project.audits import audit_judges


def audit(project: Project, out: Console, err: Console, *, as_json: bool) -> int:
    """Audit and print the drift; returns 0 when every answer came, 1 when some were lost, 2 when none could be asked.

    Raises:
        UnknownPriceError: If there is a cap in dollars and a model's price is unknown.
    """
    with project.store.only_one("run"):
        done = audit_judges(project, run_id="audit")
    if as_json:
        print_json(done.drift)
    elif done.skipped is None:
        grid = FittingTable("Judge drift", done.drift.columns)
        for row in done.drift.iter_rows():
            grid.add_row(*(Text(_cell(value)) for value in row))
        out.print(grid)
    if done.skipped is not None:
        err.print(f"Nothing was audited: {done.skipped}.", markup=False, soft_wrap=True)
        return 2
    if done.n_lost:
        err.print(f"{done.n_lost:,} answers were lost: {done.why_lost}.", markup=False, soft_wrap=True)
    return 1 if done.n_lost else 0


def _cell(value: object) -> str:
    return "–" if value is None else signed(f"{value:.3g}") if isinstance(value, float) else str(value)
