"""Never run. mypy refuses each line that ignores it: in strict mode, an ignore that is not needed is an error."""

from agent_eval.scores.composite.domain import domain_scores
from agent_eval.storage import Store
from agent_eval.tables import table


def right(store: Store) -> None:
    ratings, transcripts = store.read(table("rubric_ratings")), store.read(table("transcripts"))
    domain_scores(ratings.filter("is_effective").sort("target"), transcripts, {})


def swapped(store: Store) -> None:
    ratings, transcripts = store.read(table("rubric_ratings")), store.read(table("transcripts"))
    domain_scores(transcripts, ratings, {})  # type: ignore[arg-type]


def plain(store: Store) -> None:
    ratings, transcripts = store.read(table("rubric_ratings")), store.read(table("transcripts"))
    domain_scores(ratings.select("target"), transcripts, {})  # type: ignore[arg-type]


def selected(store: Store) -> None:
    ratings, transcripts = store.read(table("rubric_ratings")), store.read(table("transcripts"))
    chosen = ratings.unique().drop_nulls("criterion").slice(1, 2).tail(1).clone().limit(1).reverse()
    domain_scores(chosen, transcripts.sample(1).rechunk().top_k(1, by="session_id"), {})
