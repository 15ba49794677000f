"""Render the lineage of a score: the tables it was computed from, with their rows and runs, and its judges."""

from collections.abc import Mapping

import polars as pl

from agent_eval.report.links import REPORT, rating_page, run_page
from agent_eval.report.markdown import markdown_table
from agent_eval.tables.schema import MADE_FROM, above

MOST = 40  # maximum number of ratings
_LINKS = {"table": "_asset", "written by run": "_run"}


def ratings_page(ratings: pl.DataFrame, report: str = REPORT) -> str:
    """Return a table of at most `MOST` ratings of a score, lowest first, each with a link to the report.

    Args:
        ratings: Rows of rubric_ratings of one agent and version.
        report: The address of the HTML report.
    """
    scored = ratings.filter("is_effective", pl.col("rating_1to5").is_not_null())
    lowest = scored.sort("rating_1to5", "target", "criterion", "session_id", nulls_last=True).head(MOST)
    rating_rows = lowest.select(
        pl.concat_str("target", "criterion", separator=" ", ignore_nulls=True).alias("part"),
        pl.col("rating_1to5").alias("1 to 5"),
        "judge",
        pl.col("rationale").alias("judge's words"),
        pl.Series(
            "_page", [rating_page(row, report) for row in lowest.iter_rows(named=True)], dtype=pl.String
        ),
    )
    table = markdown_table(rating_rows, limit=160, links={"part": "_page"})
    return table if scored.height <= MOST else f"{table}\n\n{MOST} of {scored.height} ratings"


def lineage_page(of: str, written: pl.DataFrame, judge_rows: pl.DataFrame, facts: Mapping[str, str]) -> str:
    """Return Markdown: one line per table from the score to the sources, the judges, and the hashes.

    Args:
        of: The table that the page belongs to.
        written: The stored rows of the page's partition: table, n_rows, last_run_id, last_written.
        judge_rows: The judges of the effective ratings: judge, n_ratings, n_prompts, prompt_hash.
        facts: Versions and hashes by name.
    """
    last_run = pl.col("last_run_id").sort_by("last_written").last()
    origins = {
        name: (n, run)
        for name, n, run in written.group_by("table").agg(pl.sum("n_rows"), last_run).iter_rows()
    }
    lines = [
        {
            "table": name,
            "rows": origins.get(name, (0, ""))[0],
            "written by run": origins.get(name, (0, "–"))[1][:8],
            "made from": ", ".join(MADE_FROM[name]),
            "_asset": f"/assets/{name}",
            "_run": run_page(origins[name][1]) if name in origins else None,
        }
        for name in above(of)
    ]
    rests_on = pl.DataFrame({"rests on": list(facts), "is": list(facts.values())})
    return "\n\n".join(
        (
            markdown_table(pl.DataFrame(lines, schema_overrides={"_run": pl.String}), links=_LINKS),
            markdown_table(judge_rows) if judge_rows.height else "no rating",
            markdown_table(rests_on, limit=120),
        )
    )
