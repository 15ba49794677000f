import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.clusters.cluster_registry import Grown
from agent_eval.clusters.overrides import Applied, apply_overrides, overrides_hash, read_overrides, split_id
from tests.clusters.rows import TODAY, clusters_of, grown, merged_by, told

FIRST = grown(told("refund late", "refund invented", "baggage free"))
PAIR = REFUND, BAGGAGE = clusters_of(FIRST)["refund late"], clusters_of(FIRST)["baggage free"]


def applied(text: str, to: Grown | Applied = FIRST) -> Applied:
    entries, refused = read_overrides("people.yaml", text)
    assert refused == []
    return apply_overrides(to.registry, to.members, entries, at=TODAY)


def row(result: Applied, cluster: str) -> dict[str, object]:
    return result.registry.row(by_predicate=pl.col("cluster_id") == cluster, named=True)


WORDS = "title: Invents refund dates\n  severity: low\n  root_cause: no tool is asked\n"
RENAMED = f"- cluster: {REFUND}\n  {WORDS}"


def test_a_persons_title_severity_and_root_cause_win() -> None:
    named = applied(RENAMED)
    # the severity is below the rule's high: a person's word counts alone
    words = {"title": "Invents refund dates", "severity": "low", "root_cause": "no tool is asked"}
    assert row(named, REFUND).items() >= words.items()
    assert row(named, BAGGAGE) == row(applied(""), BAGGAGE)
    # what is taken back is the rule's again
    assert_frame_equal(applied("", named).registry, FIRST.registry)
    # the next failures change nothing of it
    after = grown(told("refund unclear"), Grown(named.registry, named.members, FIRST.failures))
    assert after.registry.filter(pl.col("cluster_id") == REFUND)["title"].item() == "Invents refund dates"
    assert after.failures["cluster_id"].item() == REFUND


def test_a_persons_words_survive_a_merge_by_consolidation() -> None:
    merged = merged_by(FIRST.registry, REFUND, BAGGAGE, "consolidation")
    entries = f"{RENAMED}- cluster: {BAGGAGE}\n  root_cause: its own\n"
    target = row(applied(entries, Grown(merged, FIRST.members, FIRST.failures)), BAGGAGE)
    words = (target["title"], target["severity"], target["root_cause"])
    assert words == ("Invents refund dates", "low", "its own")
    by_hand = row(applied(f"{RENAMED}- cluster: {REFUND}\n  merge_into: {BAGGAGE}\n"), BAGGAGE)
    assert by_hand["title"] == row(applied(""), BAGGAGE)["title"]  # who merges by hand names the target


def test_of_rule_and_model_the_graver_severity_counts() -> None:
    for by_model, severity in (("critical", "critical"), ("low", "high")):
        rated = FIRST.registry.with_columns(model_severity=pl.lit(by_model), model_title=pl.lit("named"))
        result = apply_overrides(rated, FIRST.members, [], at=TODAY).registry
        assert set(result.select("severity", "title").rows()) == {(severity, "named")}


def test_a_merge_redirects_is_an_event_once_and_can_be_taken_back() -> None:
    text = f"- cluster: {REFUND}\n  merge_into: {BAGGAGE}\n"
    merged = applied(text)
    after = grown(told("refund late"), Grown(merged.registry, merged.members, FIRST.failures))
    assert after.failures["cluster_id"].item() == BAGGAGE
    events = merged.events.select("kind", "cluster_id", "other_id", "by")
    assert events.rows() == [("merge", REFUND, BAGGAGE, "human")]
    assert applied(text, merged).events.is_empty()
    assert applied("", merged).registry["merged_into"].to_list() == [None, None]


def test_a_split_moves_its_texts_for_good_and_new_ones_follow_them() -> None:
    new = split_id(REFUND, "invented")
    text = f"- cluster: {REFUND}\n  split:\n    invented: ['REFUND, invented!']\n"
    split = applied(text)
    state = Grown(split.registry, split.members, FIRST.failures)
    ids = clusters_of(grown(told("refund invented", "refund late"), state))
    assert ids == {"refund invented": new, "refund late": REFUND}
    assert row(split, new)["title"] == "false information: “invented”"
    again = applied(text, split)
    assert_frame_equal(again.registry, split.registry)
    assert_frame_equal(again.members, split.members)
    assert row(applied(f"{text}- cluster: {new}\n  title: Made up\n"), new)["title"] == "Made up"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- cluster: E-0000000000\n  title: x\n", "is not a cluster of this project"),
        (f"- cluster: {REFUND}\n  merge_into: E-0000000000\n", "is not a cluster of this project"),
        ("".join(f"- {{cluster: {a}, merge_into: {b}}}\n" for a, b in (PAIR, PAIR[::-1])), "a circle"),
        (f"- {{cluster: {REFUND}, title: a}}\n- {{cluster: {REFUND}, title: b}}\n", "another title"),
        (f"- cluster: {REFUND}\n  split: {{x: [baggage free]}}\n", "not contain the text 'baggage free'"),
    ],
)
def test_an_entry_that_cannot_be_applied_is_refused_and_the_rest_goes_on(text: str, reason: str) -> None:
    result = applied(f"{text}- {{cluster: {BAGGAGE}, root_cause: known}}\n")
    assert [reason in refusal.reason for refusal in result.refused] == [True]
    assert row(result, BAGGAGE)["root_cause"] == "known"
    grown(told("refund late"), Grown(result.registry, result.members, FIRST.failures))  # no circle is left


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("cluster: E-0000000000\n", 1, "expected a list"),
        ("- cluster: E-0000000000\n", 1, "changes nothing"),
        ("- cluster: refunds\n  title: x\n", 1, "cluster"),
        ("- cluster: E-0000000000\n  severity: awful\n", 1, "'low', 'medium', 'high' or 'critical'"),
        ("- cluster: E-0000000000\n  colour: red\n", 1, "unknown key colour"),
        ("\n- just text\n", 2, "must be a mapping"),
        ("- cluster: E-0000000000\n  merge_into: E-0000000000\n", 1, "itself"),
        ("- cluster: E-0000000000\n  split: {UPPER: [a]}\n", 1, "UPPER"),
        ("- &a {cluster: E-0000000000, title: x}\n- *a\n", 2, "aliases"),
        ("- !!python/object:os.system {}\n", 1, "not supported"),
        ("- [\n", 2, "not YAML"),
    ],
)
def test_a_bad_entry_is_refused_by_line(text: str, line: int, reason: str) -> None:
    entries, refused = read_overrides("people.yaml", text)
    assert [e for e in entries if e.line == line] == []
    assert [(r.file, r.line) for r in refused] == [("people.yaml", line)]
    assert reason in refused[0].reason


def test_the_hash_of_overrides_changes_with_their_words_only() -> None:
    one, spaced, other = (
        overrides_hash(read_overrides("f", text)[0])
        for text in (RENAMED, f"# said\n\n{RENAMED}", RENAMED.replace("low", "medium"))
    )
    assert one == spaced != other


def test_texts_that_a_person_moves_stay_and_unknown_ones_are_named() -> None:
    moved = applied(f"- cluster: {BAGGAGE}\n  texts: [Refund LATE 17]\n")
    after = grown(
        told("refund late", "refund invented"), Grown(moved.registry, moved.members, FIRST.failures)
    )
    assert clusters_of(after) == {"refund late": BAGGAGE, "refund invented": REFUND}
    assert_frame_equal(applied("", moved).members, moved.members)
    text = f"- {{cluster: {BAGGAGE}, texts: [nothing of it, refund late]}}\n- {{cluster: {REFUND}, texts: [refund late]}}\n"
    entries, _ = read_overrides("people.yaml", text)
    refused = apply_overrides(FIRST.registry, FIRST.members, entries, at=TODAY).refused
    assert [
        (r.line, word in r.reason)
        for r, word in zip(refused, ("no cluster", "an earlier entry"), strict=True)
    ] == [
        (1, True),
        (2, True),
    ]
