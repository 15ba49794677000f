"""Every stored table, collected from one module per asset group. The store adds `run_id` and `created_at` to each."""

from agent_eval.tables import boards, errors, gates, ingest, judging, scores
from agent_eval.tables.contract import Table

TABLES: dict[str, Table] = {
    declared.name: declared
    for group in (ingest, judging, errors, scores, boards, gates)
    for declared in group.DECLARED
}


def table(name: str) -> Table:
    """Return the table of that name. A KeyError is a defect of ours."""
    return TABLES[name]
