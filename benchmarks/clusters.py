"""Error clusters on labelled failures of our own, on real texts, at scale; ids, trends and naming.

`python -m benchmarks clusters` prints all figures of the default model; `python -m benchmarks.clusters quality
minilm` and the like print one part: quality, ids, speed, trends, real.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

from agent_eval.clusters.cluster_registry import Grown, Space, new_texts, register, targets
from agent_eval.clusters.clusters import error_clusters
from agent_eval.clusters.consolidation import consolidate
from agent_eval.clusters.embedding import Vectors, embedder
from agent_eval.clusters.failures import with_findings
from agent_eval.clusters.taxonomies.taxonomy import categorised, read_taxonomy
from agent_eval.tables import table
from benchmarks.failure_generator import REPORTED_ON, Failure, generate
from benchmarks.measuring import cost

SIZE, TODAY, N_AGENTS = 2_000, date(2026, 1, 1), 20
EMPTY = table("error_registry").empty(), table("error_members").empty()
PARTS = ("quality", "ids", "speed", "trends", "real")


def measure() -> Iterator[str]:
    """Every part, in order."""
    for part in PARTS:
        yield from _part(part)


def _part(part: str, *arguments: str) -> Iterator[str]:
    if part == "trends":
        from benchmarks.cluster_trends import measure as trends

        return trends()
    parts = {"quality": quality, "ids": ids, "speed": speed, "real": real}
    return parts[part](*arguments)


def failures_of(
    generated: Sequence[Failure], agent: str = "a", *, per_turn: int = 1, has_causes: bool = False
) -> pl.DataFrame:
    """Generated failures as `failures.failures` gives them, `per_turn` in each conversation; the text is a reason or a cause."""
    n = len(generated)
    return pl.DataFrame(
        {
            "failure_id": [f"{agent}f{i:06}" for i in range(n)],
            "agent_id": [agent] * n,
            "methodology_version": ["1.3.0"] * n,
            "conversation_id": [f"c{i // per_turn:06}" for i in range(n)],
            "turn_index": [0] * n,
            "label": [f.label for f in generated],
            "quote": [f.text for f in generated],
            "reason": [f.text for f in generated],
            "cause": [f.text if has_causes else None for f in generated],
            "should_have": [None] * n,
            "message_index": [0] * n,
            "speaker": ["assistant"] * n,
            "tool": [f.tool for f in generated],
            "fault_author": ["agent"] * n,
        },
        schema_overrides=dict.fromkeys(("tool", "cause", "should_have"), pl.String),
    )


def space_of(model: str = "wordllama") -> Space:
    """The space of a model, with every vector kept in memory."""
    embed = embedder("minilm" if model == "minilm" else "wordllama")
    kept: dict[str, Vectors] = {}

    def vectors(texts: pl.DataFrame) -> Vectors:
        new = texts.filter(~pl.col("text_hash").is_in(list(kept))).unique("text_hash").sort("text_hash")
        if new.height:
            kept.update(zip(new["text_hash"], embed(new["text"].to_list()), strict=True))
        return np.stack([kept[name] for name in texts["text_hash"]])

    return Space(vectors, embed.radius)


def quality(model: str = "wordllama", size: int = SIZE) -> Iterator[str]:
    """Agreement with the truth, on the seeds that nothing was tuned on."""
    from sklearn.cluster import KMeans
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics import adjusted_rand_score, homogeneity_score

    found: dict[str, list[tuple[float, float, int]]] = {}
    for seed in REPORTED_ON:
        generated = generate(size, seed)
        truth = [f.cause for f in generated]
        grown = register(*EMPTY, failures_of(generated), space_of(model), seen_at=TODAY)
        answers = {
            f"{model}, this project": grown.failures.sort("failure_id")["cluster_id"].to_list(),
            "the block alone": [f"{f.label}|{f.tool}" for f in generated],
        }
        if model == "wordllama":
            words = TfidfVectorizer().fit_transform([f.text for f in generated])
            n_causes = len({cause for cause in truth if cause.startswith("cause")})
            means = KMeans(n_causes, n_init=3, random_state=0).fit_predict(words)
            answers["TF-IDF + k-means, k the true number"] = means.tolist()
        for name, answer in answers.items():
            scores = adjusted_rand_score(truth, answer), homogeneity_score(truth, answer), len(set(answer))
            found.setdefault(name, []).append(scores)
    for name, rows in found.items():
        ari, homogeneity, n = (np.array(column) for column in zip(*rows, strict=True))
        bars = {"wordllama": "0.65 and 0.90", "minilm": "0.80", "TF-IDF + k-means": "at most 0.35"}
        bar = bars.get(name.split(",")[0])
        yield (
            f"{name}: ARI {ari.mean():.3f} ({', '.join(f'{x:.2f}' for x in ari)}), homogeneity {homogeneity.mean():.3f} "
            f"({homogeneity.min():.2f} at least), {n.mean():.0f} clusters{f' (bar {bar})' if bar else ''}"
        )


def ids(model: str = "wordllama") -> Iterator[str]:
    """What becomes of ids when a quarter more failures arrive, in any order, and after consolidation."""
    for seed in REPORTED_ON:
        generated = generate(SIZE * 5 // 4, seed)
        everything, space = failures_of(generated), space_of(model)
        old = everything.head(SIZE)
        first = register(*EMPTY, old, space, seen_at=TODAY)
        again = register(
            *EMPTY, old.sample(fraction=1, shuffle=True, seed=seed), space_of(model), seen_at=TODAY
        )
        same = _bytes(first) == _bytes(again)
        kept, grown = [], set()
        for shuffle in range(5):
            mixed = everything.sample(fraction=1, shuffle=True, seed=shuffle)
            later = register(first.registry, first.members, mixed, space, seen_at=TODAY)
            kept.append(_kept(first, later))
            grown.add(_bytes(later))
        made = consolidate(later.registry, later.members, space, at=TODAY)
        after = register(made.registry, made.members, old, space, seen_at=TODAY)
        redirects = targets(made.registry)
        before = first.failures.with_columns(
            pl.col("cluster_id").replace_strict(redirects, return_dtype=pl.String)
        )
        redirected = _share(before["cluster_id"] == after.failures["cluster_id"])
        yield (
            f"seed {seed}: same bytes in another row order {same}; old failures that keep their id {[f'{k:.0%}' for k in kept]} (bar 100 %), "
            f"{len(grown)} outcome of 5 orders; after consolidation {redirected:.1%} by id or redirect (bar 95 %), "
            f"{dict(Counter(made.events['kind']))}"
        )


def _kept(first: Grown, later: Grown) -> float:
    both = first.failures.join(later.failures, on="failure_id", suffix="_later")
    return _share(both["cluster_id"] == both["cluster_id_later"])


def _share(of: pl.Series) -> float:
    return int(of.sum()) / len(of)


def _bytes(grown: Grown) -> str:
    return "".join(frame.write_json() for frame in (grown.registry, grown.members, grown.failures))


def speed(model: str = "wordllama") -> Iterator[str]:
    """Time and memory of new failures, model loading included, in a process of its own."""
    empty = cost([sys.executable, "-c", "import benchmarks.clusters"])
    yield f"importing alone: {empty}"
    for n, unique in (
        (2_500, 2_500),
        (5_000, 5_000),
        (10_000, 10_000),
        (25_000, 10_000),
        (100_000, 10_000),
        (100_000, 100_000),
    ):
        spent = cost([sys.executable, "-m", "benchmarks.clusters", "once", str(n), str(unique), model])
        bar = " (bar 12 CPU s, 500 MB)" if n == unique == 10_000 else ""
        yield f"{n:,} failures, {unique:,} distinct: {spent}{bar}"
    spent = cost([sys.executable, "-m", "benchmarks.clusters", "agents", "1000000", "100000", model])
    yield f"1,000,000 failures of {N_AGENTS} agents, 100,000 distinct: {spent}"


def once(n: int, unique: int, model: str) -> None:
    """One registering of `n` failures over exactly `unique` distinct causes, as normalised, with all that is counted."""
    texts, space = _texts(unique), space_of(model)
    found = failures_of((texts * (n // unique + 1))[:n], per_turn=2, has_causes=True)
    grown = register(*EMPTY, found, space, seen_at=TODAY)
    assert grown.members.height >= unique * 0.99
    _counted(grown, space)


def _counted(grown: Grown, space: Space) -> None:
    """Findings, categories of a taxonomy by its crosswalk, and table error_clusters with `same_as`."""
    taxonomy = read_taxonomy("mast", Path())
    registry = categorised(grown.registry, grown.members, space, taxonomy)
    made = error_clusters(with_findings(grown.failures), table("turn_judgments").empty(), registry)
    assert made["n_failures"].sum() == grown.failures.height


def agents(n: int, unique: int, model: str) -> None:
    """The same failures of several agents as a run in chunks does it: new texts first, then agent by agent."""
    texts, space = _texts(unique), space_of(model)
    per_agent = n // N_AGENTS

    def of(agent: int) -> pl.DataFrame:
        start = agent * per_agent % unique
        return failures_of(
            (texts[start:] + texts)[:per_agent], f"agent-{agent:02}-", per_turn=2, has_causes=True
        )

    found = new_texts(of(0), EMPTY[1])
    for agent in range(1, N_AGENTS):
        found = new_texts(pl.concat([found, of(agent)]), EMPTY[1])
    grown = register(*EMPTY, found, space, seen_at=TODAY)
    for agent in range(N_AGENTS):
        again = register(grown.registry, grown.members, of(agent), space, seen_at=TODAY)
        assert again.members.height == grown.members.height >= unique * 0.99
        _counted(again, space)


def _texts(unique: int) -> list[Failure]:
    from agent_eval.clusters.texts import normalised

    chosen: dict[str, Failure] = {}
    seed = 0
    while len(chosen) < unique:
        for failure in generate(unique, seed):
            chosen.setdefault(
                normalised(failure.text + _aside(seed)),
                replace(failure, text=failure.text + _aside(seed)),
            )
        seed += 1
    return list(chosen.values())[:unique]


def _aside(seed: int) -> str:
    """Words that make a text distinct once the generator's own combinations are used up."""
    asides = (
        "",
        " at noon",
        " on the phone",
        " by letter",
        " in the app",
        " for a friend",
        " abroad",
        " again today",
        " before lunch",
        " on the train",
    )
    return asides[seed % len(asides)]


def real(model: str = "wordllama") -> Iterator[str]:
    """The failure reasons of Who&When and the tau2 judges' words: the ten largest clusters of each."""
    folder = Path(os.environ.get("AGENT_EVAL_SHARED_DATA") or "../shared/data")
    for name, texts in real_texts(folder):
        generated = [Failure("false information", None, text, "") for text in texts]
        grown = register(*EMPTY, failures_of(generated), space_of(model), seen_at=TODAY)
        sizes = Counter(grown.failures["cluster_id"])
        yield f"{name}: {len(texts)} texts, {len(sizes)} clusters, {sum(n == 1 for n in sizes.values())} of one"
        for cluster, n in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:10]:
            rows = grown.failures.filter(pl.col("cluster_id") == cluster).sort("distance")
            yield f"  {cluster}: {n}"
            yield from (f"      {' '.join(text.split())[:170]}" for text in rows["reason"].head(4))


def real_texts(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Name and texts of each collection; none when the folder is absent."""
    import gzip

    reasons = folder / "whowhen" / "algorithm_generated.jsonl.gz"
    if not reasons.is_file():
        return
    with gzip.open(reasons, "rt") as lines:
        yield "Who&When", [json.loads(line)["mistake_reason"] for line in lines]
    issues: list[str] = []
    justifications: list[str] = []
    for path in sorted((folder / "tau2_judges").glob("*.json.gz")):
        with gzip.open(path) as stream:
            entries = json.load(stream)["entries"]
        for entry in entries:
            if entry["judge_verdict"] == "fail":
                justifications.append(entry["judge_justification"])
            issues += [
                issue if isinstance(issue, str) else _first(issue, "description", "explanation", "issue")
                for issue in entry["judge_issues"]
            ]
    yield "tau2 judges, justifications of failed runs", justifications
    yield "tau2 judges, issues", issues


def _first(record: dict[str, str], *keys: str) -> str:
    return next((record[key] for key in keys if record.get(key)), "")


if __name__ == "__main__":
    part, *arguments = sys.argv[1:] or PARTS
    if part in ("once", "agents"):
        {"once": once, "agents": agents}[part](int(arguments[0]), int(arguments[1]), arguments[2])
    else:
        for line in _part(part, *arguments):
            print(line, flush=True)
