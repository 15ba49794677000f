"""Near-duplicates: a text of an agent counts once, in a session, over sessions and over the agents of a board."""

import base64
import codecs
import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval.formats.hashing import digest
from agent_eval.scores.composite.copies import NEAR, near_duplicates
from agent_eval.scores.composite.leaderboard import leaderboard, pairwise_comparisons
from agent_eval.tables import table
from agent_eval.transcripts.content_hash import own_words_hash
from agent_eval.transcripts.models import Conversation as Talk
from agent_eval.transcripts.models import Message
from agent_eval.transcripts.text_sketch import ENOUGH_WORDS, TextSketch, containment
from tests.scores.sessions import Conversation, asked, complete, only, rated, scored, write

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "st", "ck")]
VARIED = [f"{word}{end}" for word in WORDS for end in ("ap", "ilo", "em", "uth")]
Disguise = Callable[[str, str], str]


def text(seed: str, n_words: int = 50) -> str:
    """The same words for the same seed."""
    return " ".join(random.Random(seed).choices(WORDS, k=n_words))


def session_of(
    words: str, n_words: int = 50, disguise: Disguise = lambda said, _: said
) -> list[Conversation]:
    """A complete session; each slot has two replies, of the words of `words`."""
    made = complete()
    return [
        asked(
            c["scenario"],
            *(disguise(text(f"{words} {c['scenario']} {i}", n_words), c["scenario"]) for i in "ab"),
        )
        for c in made
    ]


DISGUISES: dict[str, Disguise] = {
    "one word more": lambda said, _: f"{said} indeed",
    "one word amid": lambda said, _: said.replace(" ", " indeed ", 20).replace(" indeed ", " ", 19),
    "a trace id": lambda said, slot: f"[trace 9f8a{hash(slot) % 10**9:x}77] {said}",
    "look-alike letters": lambda said, _: said.translate(str.maketrans("aeopc", "аеорс")),
    "greek letters": lambda said, _: said.translate(str.maketrans("aeiknoptuvxy", "αεικηορτυνχγ")),
    "small capitals": lambda said, _: said.translate(str.maketrans("abcdegikmnoptu", "ᴀʙᴄᴅᴇɢɪᴋᴍɴᴏᴘᴛᴜ")),
    "entities": lambda said, _: "".join(f"&#{ord(c)};" if c != " " else c for c in said),
    "accents": lambda said, _: said.replace("a", "á").replace("e", "e\u0301"),
    "invisible letters": lambda said, _: said.replace("a", "a\u200b").replace("n ", "n\u00ad "),
    "full width": lambda said, _: "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in said),
    "other letters": lambda said, _: said.translate(str.maketrans("aegilostu", "ɐəɢɪɫøꓢꞇᴜ")),
    "cherokee letters": lambda said, _: said.translate(str.maketrans("abcdegjkstz", "ᎪᏴᏟᎠᎬᏀᎫᏦᏚᎢᏃ")),
    "digits": lambda said, _: re.sub(
        r"(?<=[a-z])[aeost](?=[a-z])", lambda m: "43057"["aeost".index(m[0])], said
    ),
    "letters apart": lambda said, _: "   ".join(" ".join(word) for word in said.split()),
    "joined by hyphens": lambda said, _: "-".join(said.split()),
    "joined by underscores": lambda said, _: "_".join(said.split()),
    "joined by capitals": lambda said, _: "".join(map(str.capitalize, said.split())),
    "words doubled": lambda said, _: " ".join(f"{word} {word}" for word in said.split()),
    "letters doubled": lambda said, _: re.sub("[aeiou]", r"\g<0>\g<0>", said),
    "symbols in words": lambda said, _: " ".join(f"{word[:2]}🙂{word[2:]}" for word in said.split()),
    "comments in words": lambda said, _: " ".join(f"{word[:2]}<!-- x -->{word[2:]}" for word in said.split()),
    "hyphens at the end of lines": lambda said, _: " ".join(f"{w[:2]}-\n{w[2:]}" for w in said.split()),
    "escapes": lambda said, _: "".join(f"\\u{ord(c):04x}" for c in said),
    "escapes of bytes": lambda said, _: "".join(f"\\x{ord(c):02x}" if c.isalpha() else c for c in said),
    "an accent that folds to i": lambda said, _: re.sub("[aeo]", "\\g<0>\u0345", said),
    "percent signs": lambda said, _: "".join(f"%{ord(c):02x}" for c in said),
    "reversed": lambda said, _: f"\u202e{said[::-1]}\u202c",
    "twice as long": lambda said, slot: f"{said} {text(slot, 45)}",
}


@pytest.mark.parametrize("name", DISGUISES)
@pytest.mark.parametrize("n_words", [50, 15])
def test_copies_of_a_session_earn_neither_the_ten_points_nor_an_interval(
    tmp_path: Path, name: str, n_words: int
) -> None:
    if name == "twice as long" and n_words < ENOUGH_WORDS:
        pytest.skip("45 words more make it another text")
    for day, disguise in (("1", lambda said, _: said), ("2", DISGUISES[name]), ("3", DISGUISES[name])):
        slots = session_of("ada", n_words, disguise)
        write(
            tmp_path,
            "ada",
            f"s{day}",
            slots,
            benchmark_id="run",
            date=f"2026-04-0{day}",
            repeatability_tested=True,
        )
    row = only(scored(tmp_path, [r for i in "123" for r in rated("ada", f"s{i}")]))
    assert (row["status"], row["repeatability_tested"], row["composite_score"]) == ("provisional", None, None)
    how = r"(near copy of s1: 8 of 8 conversations share (8\d|9\d|100)% of their text|copy of s1)"
    for i in "23":
        assert any(re.fullmatch(f"copied session: s{i} is a {how}", text) for text in row["missing"])


def test_sessions_in_other_words_are_three(tmp_path: Path) -> None:
    for i in "123":
        slots = session_of(f"ada {i}")
        write(
            tmp_path,
            "ada",
            f"s{i}",
            slots,
            benchmark_id="run",
            date=f"2026-04-0{i}",
            repeatability_tested=True,
        )
    row = only(scored(tmp_path, [r for i in "123" for r in rated("ada", f"s{i}")]))
    assert (row["status"], row["missing"], row["composite_score"]) == ("published", [], 80.0)


@pytest.mark.parametrize("n_words", [60, 5])
def test_one_conversation_in_all_slots_is_not_a_session(tmp_path: Path, n_words: int) -> None:
    one = asked("D1", text("x", n_words), text("y", n_words))["messages"]
    slots = [c | {"messages": one} for c in complete()]
    write(tmp_path, "ada", "s", slots)
    row = only(scored(tmp_path, rated("ada", "s")))
    assert row["status"] == "provisional"
    assert row["missing"] == [
        "copied conversation: D2, D3, D4, D5, error_injection, hallucination, standardised_task of session s repeat D1: 8 of 8 conversations share 100% of their text; a slot that also serves as a test is "
        "linked, not copied"
    ]


@pytest.mark.parametrize(
    ("n", "same_question", "status"),
    [(2, True, "provisional"), (3, False, "published"), (4, False, "provisional")],
)
def test_a_text_in_several_slots_counts_once(
    tmp_path: Path, n: int, same_question: bool, status: str
) -> None:
    slots = session_of("ada")
    for c in slots[:n]:
        c["messages"] = asked("D1" if same_question else c["scenario"], text("x"), text("y"))["messages"]
    write(tmp_path, "ada", "s", slots)
    assert only(scored(tmp_path, rated("ada", "s")))["status"] == status


@pytest.mark.parametrize(
    ("n", "rating", "status"),
    [
        (8, 1, "published"),
        (8, 2, "provisional"),
        (8, 5, "provisional"),
        (4, 5, "provisional"),
        (3, 5, "published"),
    ],
)
def test_one_short_reply_in_half_of_the_slots_counts_only_as_the_lowest_rating(
    tmp_path: Path, n: int, rating: int, status: str
) -> None:
    slots = complete()
    for c in slots[:n]:
        c["messages"] = asked(c["scenario"], "I can help with that.", "[id 9f8a7b6c5d] Done!")["messages"]
    write(tmp_path, "ada", "s", slots)
    row = only(scored(tmp_path, rated("ada", "s", rating)))
    assert row["status"] == status
    if status == "provisional":
        how = rf"repeated reply: [\w, ]+ of session s have the reply of \w+: {n} of 8 conversations"
        assert [bool(re.fullmatch(how, text)) for text in row["missing"]] == [True]


@pytest.mark.parametrize(
    ("reply", "n", "rating", "status"),
    [
        ("{n}", 8, 5, "provisional"),
        ("{n}.50 €", 4, 5, "provisional"),
        ("Question of {slot}, question", 8, 5, "provisional"),
        ("You said: {question} What else?", 8, 5, "provisional"),
        ("{question} {question} Thank you for asking: {question}", 4, 5, "provisional"),
        ("{word}", 8, 5, "provisional"),
        ("{word}! {word}", 4, 5, "provisional"),
        ("Here: {blob}", 8, 5, "provisional"),
        ("{n}", 3, 5, "published"),
        ("{n}", 8, 1, "published"),
        ("You said: {question} What else?", 8, 1, "published"),
        ("You said: {question} What else?", 3, 5, "published"),
        ("You said: {question} I have {word} it.", 8, 5, "published"),
        ("It is {n}", 8, 5, "published"),
        ("I have {word} it.", 8, 5, "published"),
    ],
)
def test_numbers_echoes_single_words_and_what_is_no_word_in_half_of_the_slots_count_only_as_the_lowest_rating(
    tmp_path: Path, reply: str, n: int, rating: int, status: str
) -> None:
    slots = complete()
    for i, c in enumerate(slots[:n]):
        word = WORDS[i]
        blob = base64.b64encode(text(word).encode()).decode()
        named = {"slot": c["scenario"], "word": word, "blob": blob}
        shown = (
            reply.format(n=k, question=f"Question {j} of {c['scenario']}?", **named)
            for j, k in enumerate((17 * i, 3 * i))
        )
        c["messages"] = asked(c["scenario"], *shown)["messages"]
    write(tmp_path, "ada", "s", slots)
    row = only(scored(tmp_path, rated("ada", "s", rating)))
    assert row["status"] == status
    if status == "provisional":
        how = (
            r"repeated reply: .* (have replies of at most one word of their own|but for the user's messages)"
        )
        assert [bool(re.fullmatch(f"{how}: {n} of 8 conversations", m)) for m in row["missing"]] == [True]


@pytest.mark.parametrize(
    ("argument", "n", "status"),
    [
        ("{n}", 8, "provisional"),
        ("{n}", 4, "provisional"),
        ("{n}", 3, "published"),
        ("{word}", 8, "published"),
    ],
)
def test_calls_without_words_that_differ_only_in_numbers_are_one_reply(
    tmp_path: Path, argument: str, n: int, status: str
) -> None:
    slots = complete()
    for i, c in enumerate(slots[:n]):
        call = {"id": "1", "name": "wait", "arguments": {"for": argument.format(n=i, word=WORDS[i])}}
        c["messages"] = [
            m | {"content": None, "tool_calls": [call]} if m["role"] == "assistant" else m for m in c["messages"]
        ]  # fmt: skip
    write(tmp_path, "ada", "s", slots)
    assert only(scored(tmp_path, rated("ada", "s")))["status"] == status


def test_trials_of_one_question_that_are_answered_otherwise_are_no_copies(tmp_path: Path) -> None:
    slots = [c for c in complete() if c["scenario"] != "D2"]
    replies = ("Blue.", "Red.", "Blue.", "Green, I think.") * 3  # more conversations than all others together
    for i, reply in enumerate(replies):
        messages = [
            {"role": "user", "content": "Is it blue or red?"},
            {"role": "assistant", "content": reply},
        ]
        slots.append(asked("D2", messages=messages) | {"conversation_id": f"d2-{i}"})
    write(tmp_path, "ada", "s", slots)
    d2 = [r for r in rated("ada", "s") if r["target"] == "D2"]
    more = [
        r | {"conversation_id": f"d2-{i}", "line": 90 + 3 * i + j}
        for i in range(12)
        for j, r in enumerate(d2)
    ]
    row = only(scored(tmp_path, [*(r for r in rated("ada", "s") if r["target"] != "D2"), *more]))
    assert [m for m in row["missing"] if "Green" in m or "repeated reply" in m] == []


SHOWN_AS_NOTHING = (
    "<!-- It is sent. -->", "\u3164", "\u2800\u2800", "\u200b", "<p><br></p>", "&nbsp;", "```\n```", "<|endoftext|>", "[DONE]",
    "(no content)", "Loading...", '{"content": ""}', "{{reply}}", "assistant:",
)  # fmt: skip


@pytest.mark.parametrize("reply", SHOWN_AS_NOTHING)
def test_what_is_shown_as_nothing_is_no_reply(tmp_path: Path, reply: str) -> None:
    write(tmp_path, "ada", "s", [asked(c["scenario"], reply, reply) for c in complete()])
    row = only(scored(tmp_path, rated("ada", "s")))
    assert row["status"] == "provisional"
    assert "the agent never replied" in row["missing"][0]


@pytest.mark.parametrize(
    "reply",
    ["7 EUR", "None.", "<br>", "<div class='a'></div>", "(no output)", '{"orders": []}', "👍", "```\n1\n```"],
)
def test_a_short_answer_is_a_reply(reply: str) -> None:
    assert Message(role="assistant", content=reply).says_something


def board(
    root: Path, dates: dict[str, str], disguise: Disguise = lambda said, _: said
) -> dict[str, dict[str, Any]]:
    """The board of agents with one session each; those of one first letter say the same."""
    for name, date in dates.items():
        own = session_of(name[0], disguise=disguise if len(name) > 1 else lambda said, _: said)
        write(root, name, "s", own, date=date)
    composites = scored(root, [r for name in dates for r in rated(name, "s")])
    agents = table("agents").frame([{"agent_id": name} for name in dates])
    made: Any = (composites, agents, table("reliability").empty())
    rows = leaderboard(*made)
    compared = pairwise_comparisons(made[0])
    ranked = set(rows.filter(pl.col("rank").is_not_null())["agent_id"])
    assert {*compared["agent_id"], *compared["other_agent_id"]} == (ranked if len(ranked) > 1 else set())
    return {row["agent_id"]: row for row in rows.iter_rows(named=True)}


@pytest.mark.parametrize(
    ("name", "dates"),
    [("one word more", ("01", "02")), ("entities", ("02", "01")), ("words doubled", ("01", "01"))],
)
def test_of_two_agents_with_the_same_session_neither_is_ranked_whatever_their_dates(
    tmp_path: Path, name: str, dates: tuple[str, str]
) -> None:
    first, second = (f"2026-04-{day}" for day in dates)
    rows = board(tmp_path, {"a": first, "b": "2026-04-01", "a-copy": second}, DISGUISES[name])
    assert {a: (row["status"], row["rank"]) for a, row in rows.items()} == {
        "a": ("provisional", None), "b": ("published", 1), "a-copy": ("provisional", None),
    }  # fmt: skip
    for one, other in (("a", "a-copy"), ("a-copy", "a")):
        (said,) = rows[one]["missing"]
        how = r"8 of 8 conversations share (9\d|100)% of it"
        assert re.fullmatch(f"copied session: s and {other}'s session s have the same text: {how}", said)


def with_one_word_in_20_replaced(said: str, slot: str) -> str:
    words, chance = said.split(), random.Random(slot)
    for i in range(chance.randrange(20), len(words), 20):
        words[i] = chance.choice(VARIED)
    return " ".join(words)


def with_sentences_reordered(said: str, slot: str) -> str:
    words = said.split()
    sentences = [words[i : i + 12] for i in range(0, len(words), 12)]
    random.Random(slot).shuffle(sentences)
    return " ".join(word for sentence in sentences for word in sentence)


REWORDINGS: list[Disguise] = [
    with_one_word_in_20_replaced,
    with_sentences_reordered,
]


def of_each_word(change: Callable[[str], str]) -> Disguise:
    return lambda said, _: re.sub("[A-Za-z]+", lambda m: change(m[0]), said)


def of_every(n: int, change: Callable[[str], str]) -> Disguise:
    """Change the last one of `n` words."""
    return lambda said, _: " ".join(
        new for i, w in enumerate(said.split()) if (new := change(w) if i % n == n - 1 else w)
    )


WORD_FOR_WORD: dict[str, Disguise] = {
    "plurals": of_each_word(lambda w: f"{w}s"),
    "rot13": lambda said, _: codecs.encode(said, "rot13"),
    "words backwards": of_each_word(lambda w: w[::-1]),
    "a code book": of_each_word(lambda w: random.Random(w.casefold()).choice(VARIED) + "o"),
    "every fourth word dropped": of_every(4, lambda _: ""),
    "every third word dropped": of_every(3, lambda _: ""),
    "a word more after every third": of_every(3, lambda w: f"{w} {random.Random(w).choice(VARIED)}"),
    "one word in 20 replaced": of_every(20, lambda w: random.Random(w).choice(VARIED)),
}


def sample_session(agent: str, disguise: Disguise = lambda said, _: said) -> list[Conversation]:
    """What an agent of the sample said, which has the recurring words of a language."""
    [path, *_] = sorted((Path(__file__).parents[2] / "data/sessions" / agent).glob("*/conversations.jsonl"))
    of_slot = {c["scenario"]: c for c in map(json.loads, path.read_text().splitlines())}
    slots = complete()
    for c in slots:
        c["messages"] = [
            m | {"content": disguise(m["content"], c["scenario"])}
            if m["role"] == "assistant" and m.get("content") else m
            for m in of_slot[c["scenario"]]["messages"]
        ]  # fmt: skip
    return slots


@pytest.mark.parametrize("name", WORD_FOR_WORD)
@pytest.mark.parametrize("thief", ["ada", "eve"], ids=["own", "of another agent"])
def test_a_copy_with_each_word_replaced_or_some_dropped_or_added_earns_no_rank(
    tmp_path: Path, name: str, thief: str
) -> None:
    write(tmp_path, "ada", "s", sample_session("lumen-support"), benchmark_id="run", session_run="1")
    copied = sample_session("lumen-support", WORD_FOR_WORD[name])
    write(tmp_path, thief, "copy", copied, benchmark_id="run", session_run="2")
    found = ranks_and_reasons(tmp_path)
    assert {rank for rank, _ in found.values()} == {None}
    assert any(m.startswith("copied session: copy ") for m in found[thief][1])


FACTS = [
    f"{a}{b}" for a in ("Lom", "Vard", "Kest", "Bril", "Sund") for b in ("ing", "aro", "eld", "ock", "ia")
]


def from_a_template(seed: str) -> list[Conversation]:
    """A support bot that answers every question in set phrases, with other facts."""
    slots = complete()
    for c in slots:
        city, item, name, street, shop, carrier, clerk, day = random.Random(f"{seed} {c['scenario']}").sample(
            FACTS, k=8
        )
        c["messages"] = asked(
            c["scenario"],
            f"Thank you for writing to us, {name}. The {item} that you ordered from {shop} was sent to {street} in {city}, "
            f"and {carrier} will bring it to you on {day}.",
            f"If the {item} is not in {city} by {day}, write to {clerk} and we will send it to you again, or ask {carrier} "
            f"for the number of the parcel that was sent to {street}.",
        )["messages"]  # fmt: skip
    return slots


def test_set_phrases_with_other_facts_are_no_copies(tmp_path: Path) -> None:
    for agent in "ab":
        for i in "123":
            write(tmp_path, agent, i, from_a_template(f"{agent} {i}"), benchmark_id="run", session_run=i)
    assert {a: reasons for a, (_, reasons) in ranks_and_reasons(tmp_path).items()} == {"a": [], "b": []}


@pytest.mark.parametrize("reworded", REWORDINGS)
@pytest.mark.parametrize("n", [8, 7, 4])
def test_a_session_of_another_agent_in_slightly_other_words_earns_no_rank(
    tmp_path: Path, reworded: Disguise, n: int
) -> None:
    slots, own = session_of("a", 80), session_of("b", 80)
    copied = session_of("a", 80, reworded)
    for name, said in (("a", slots), ("a-copy", [*copied[:n], *own[n:]])):
        write(tmp_path, name, "s", said)
    ranks = {name: rank for name, (rank, _) in ranks_and_reasons(tmp_path).items()}
    assert ranks == ({"a": None, "a-copy": None} if n >= 7 else {"a": 1, "a-copy": 1})


def in_one_text(said: str) -> Any:
    return {"to": {"user": {"texts": [said]}}}


def in_lines(said: str) -> Any:
    words = said.split()
    return {"lines": [" ".join(words[i : i + 9]) for i in range(0, len(words), 9)]}


def under_keys(said: str) -> Any:
    words = said.split()
    return {f"line{i}": " ".join(words[i : i + 7]) for i in range(0, len(words), 7)}


@pytest.mark.parametrize("arguments_of", [in_one_text, in_lines, under_keys])
def test_a_text_moved_into_the_arguments_of_a_call_is_still_said(
    tmp_path: Path, arguments_of: Callable[[str], Any]
) -> None:
    for name in ("a", "a-copy"):
        slots = session_of("a")
        for c in slots if name == "a-copy" else ():
            for i, message in enumerate(c["messages"]):
                if message["role"] == "assistant":
                    arguments = arguments_of(message["content"])
                    c["messages"][i] = message | {
                        "content": "Sent.",
                        "tool_calls": [{"id": str(i), "name": "say", "arguments": arguments}],
                    }
        write(tmp_path, name, "s", slots)
    assert {rank for rank, _ in ranks_and_reasons(tmp_path).values()} == {None}


@settings(max_examples=60, deadline=None)
@given(st.integers(40, 400), st.integers(40, 400), st.integers(0, 10**6))
def test_the_estimated_share_is_near_the_true_share(n: int, m: int, seed: int) -> None:
    rng = random.Random(seed)
    drawn = rng.sample(VARIED, k=n + m)  # distinct: a word that is repeated may be a filler
    common, rest = drawn[:n], drawn[n:]
    shingles = [{tuple(w[i : i + 3]) for i in range(len(w) - 2)} for w in (common, common + rest)]
    true = len(shingles[0] & shingles[1]) / min(map(len, shingles))
    a, b = TextSketch.of([" ".join(common)]), TextSketch.of([" ".join(common + rest)])
    assert a is not None
    assert b is not None
    assert TextSketch.read(a.text()) == a
    assert containment(a, b) == pytest.approx(true, abs=0.35)
    assert containment(a, a) == 1.0


def test_a_short_text_is_found_within_a_long_one() -> None:
    n_found = 0
    for seed in range(50):
        drawn = random.Random(seed).sample(VARIED, k=445)
        whole = [" ".join(drawn[:45]), " ".join([*drawn[45:245], *drawn[:45], *drawn[245:]])]
        n_found += bool(near_duplicates([s for t in whole if (s := TextSketch.of([t])) is not None]))
    assert n_found >= 45  # 47 % before more hashes were indexed


@pytest.mark.slow
def test_copies_are_found_in_linear_time() -> None:
    sketches = [TextSketch.of([text(str(i % 9_000), 120)]) for i in range(10_000)]
    known = [s for s in sketches if s is not None]
    began = time.process_time()
    found = near_duplicates(known)
    assert time.process_time() - began < 5
    assert [(m.number, m.earlier) for m in found] == [(9_000 + i, i) for i in range(1_000)]
    assert min(m.share for m in found) >= NEAR


@pytest.mark.slow
@pytest.mark.parametrize(("pool", "n_shared"), [(5_000, 0), (2**32, 64)], ids=["few words", "one template"])
def test_the_texts_of_30_000_conversations_with_much_in_common_are_compared_in_5_seconds(
    pool: int, n_shared: int
) -> None:
    rng = random.Random(1)
    shared = rng.sample(range(2**20), n_shared)
    drawn = [sorted({*shared, *rng.choices(range(pool), k=128 - n_shared)}) for _ in range(30_000)]
    sketches = [TextSketch(140, len(hashes), tuple(hashes)) for hashes in drawn]
    began = time.process_time()
    assert near_duplicates(sketches) == []
    assert time.process_time() - began < 5


def test_an_echo_is_found_in_time_linear_in_the_conversation() -> None:
    """Also if all messages begin alike; a fixed frame around the user's words leaves the same words."""

    def seconds(n: int) -> float:
        rng = random.Random(n)
        texts = [
            f"please tell me {' '.join(f'w{rng.randrange(9_000)}' for _ in range(20))}" for _ in range(n)
        ]
        said = [
            m
            for t in texts
            for m in (
                {"role": "user", "content": t},
                {"role": "assistant", "content": f"Right, {t} and so on."},
            )
        ]
        talk = Talk.model_validate({"conversation_id": "c", "messages": said})
        times = []
        for _ in range(3):
            began = time.process_time()
            found = own_words_hash(talk)
            times.append(time.process_time() - began)
        assert found == digest("own words", [" ".join(["right", "and", "so", "on"] * n), []])
        return min(times)

    assert seconds(2_000) < 12 * max(seconds(500), 0.02)


# Ways to earn a point or a rank that were tried

RUN = {"benchmark_id": "run", "repeatability_tested": True}


def with_best_of_two_days(root: Path) -> str:
    """A copy of the best of two superseded runs, with a new date."""
    write(root, "ada", "best", session_of("best"), date="2026-04-01")
    write(root, "ada", "bad", session_of("bad"), date="2026-05-01")
    write(root, "ada", "new", session_of("best"), date="2026-06-01")
    return "copied session: new is a copy of best"


def with_a_mixed_session(root: Path) -> str:
    """A third session of three conversations of each of the others."""
    mixed = [*session_of("a")[:3], *session_of("b")[3:6], *session_of("c")[6:]]
    for i, (name, slots) in enumerate(
        (("a", session_of("a")), ("b", session_of("b")), ("new", mixed)), start=1
    ):
        write(root, "ada", name, slots, date=f"2026-04-0{i}", **RUN)
    return "copied session: new repeats conversations of a, b: 6 of 8 conversations share 100% of their text"


def with_slots_permuted(root: Path) -> str:
    write(root, "ada", "a", session_of("a"), date="2026-04-01", benchmark_id="run")
    slots = session_of("a")
    for c, other in zip(slots, [*session_of("a")[1:], session_of("a")[0]], strict=True):
        c["messages"] = other["messages"]
    write(root, "ada", "new", slots, date="2026-04-02", benchmark_id="run")
    return "copied session: new is a near copy of a: 8 of 8 conversations share 100% of their text"


def with_an_id_in_the_calls(root: Path) -> str:
    """Copies that only call tools, with a trace id more."""
    for name, trace in (("a", {}), ("new", {"trace": "9f8e7d6c5b4a"})):
        slots = session_of(name, 3)
        for c in slots:
            arguments = {"order": text(c["scenario"], 4)} | trace
            calls = [{"id": "1", "name": "refund", "arguments": arguments}]
            c["messages"] = [
                *asked(c["scenario"], "Sure.", "Done.")["messages"],
                {"role": "assistant", "tool_calls": calls},
            ]
        write(root, "ada", name, slots, date="2026-04-01", session_run=name, benchmark_id="run")
    return "copied session: new is a copy of a"


@pytest.mark.parametrize(
    "attack", [with_best_of_two_days, with_a_mixed_session, with_slots_permuted, with_an_id_in_the_calls]
)
def test_a_copy_in_another_guise_earns_no_rank(tmp_path: Path, attack: Callable[[Path], str]) -> None:
    said = attack(tmp_path)
    names = [path.name for path in (tmp_path / "ada").iterdir()]
    row = only(scored(tmp_path, [r for name in names for r in rated("ada", name)]))
    assert (row["status"], [m for m in row["missing"] if m.startswith("copied")]) == ("provisional", [said])


def test_a_good_conversation_repeated_in_a_slot_does_not_outvote_a_bad_one(tmp_path: Path) -> None:
    good = [asked("D2", text("x"), text("y")) | {"conversation_id": f"good-{i}"} for i in range(3)]
    write(tmp_path, "ada", "s", [*session_of("ada"), *good])
    d2 = [r for r in rated("ada", "s") if r["target"] == "D2"]
    more = [
        r | {"conversation_id": f"good-{i}", "line": 90 + 3 * i + j}
        for i in range(3)
        for j, r in enumerate(d2)
    ]
    row = only(scored(tmp_path, [*rated("ada", "s", D2=(1, 1, 1)), *more]))
    assert row["status"] == "provisional"
    assert (
        "D2, D2 of session s repeat D2: 3 of 11 conversations share 100% of their text" in row["missing"][0]
    )


@pytest.mark.parametrize("n_words", [4, 50])
def test_equal_trials_of_every_question_of_a_slot_are_no_copies(tmp_path: Path, n_words: int) -> None:
    session = session_of("ada")
    [d2] = [c for c in session if c["scenario"] == "D2"]
    d2["messages"] = asked("D2", text("x", n_words))["messages"]
    again = [d2 | {"conversation_id": f"trial-{i}"} for i in range(2)]
    write(tmp_path, "ada", "s", [*session, *again])
    more = [
        r | {"conversation_id": f"trial-{i}", "line": 90 + 3 * i + j}
        for i in range(2)
        for j, r in enumerate(r for r in rated("ada", "s") if r["target"] == "D2")
    ]
    row = only(scored(tmp_path, [*rated("ada", "s"), *more]))
    assert (row["status"], row["missing"]) == ("published", [])


def ranks_and_reasons(root: Path) -> dict[str, tuple[int | None, list[str]]]:
    """Rank and `missing` of every agent with a folder in `root`, whose sessions are rated 4."""
    folders = [session for agent in root.iterdir() for session in agent.iterdir()]
    found: Any = scored(root, [r for f in folders for r in rated(f.parent.name, f.name)])
    rows = leaderboard(found, table("agents").empty(), table("reliability").empty())
    return {
        agent: (rank, missing) for agent, rank, missing in rows.select("agent_id", "rank", "missing").rows()
    }


def test_a_session_of_parts_of_two_agents_and_of_a_superseded_run_is_a_copy(tmp_path: Path) -> None:
    write(tmp_path, "ann", "old", session_of("ann"), date="2026-04-01")
    write(tmp_path, "ann", "new", session_of("ann new"), date="2026-05-01")
    write(tmp_path, "bob", "s", session_of("bob"), date="2026-04-01")
    mixed = [*session_of("ann")[:3], *session_of("bob")[3:6], *session_of("cat")[6:]]
    write(tmp_path, "cat", "s", mixed, date="2026-03-01")
    write(tmp_path, "dan", "s", session_of("dan"))
    same = "have the same text"
    part = f"{same}: 3 of 8 conversations share 100% of it"
    assert ranks_and_reasons(tmp_path) == {
        "ann": (None, [f"copied session: old and cat's session s {part}"]),
        "bob": (None, [f"copied session: s and cat's session s {part}"]),
        "cat": (None, [f"copied session: s and ann's session old, bob's session s {same}: 6 of 8 conversations share 100% of it"]),
        "dan": (1, []),
    }  # fmt: skip


def test_one_conversation_in_common_with_a_copied_session_costs_no_rank(tmp_path: Path) -> None:
    """Dan says the same in one of eight conversations, e.g. the right code; three make a part of a copy."""
    write(tmp_path, "ann", "s", session_of("ann"))
    write(tmp_path, "bob", "s", session_of("ann"))
    for name, n in (("dan", 1), ("eve", 3)):
        write(tmp_path, name, "s", [*session_of("ann")[:n], *session_of(name)[n:]])
    found = ranks_and_reasons(tmp_path)
    assert {name: rank for name, (rank, _) in found.items()} == {
        "ann": None,
        "bob": None,
        "dan": 1,
        "eve": None,
    }
    assert found["dan"] == (1, [])


def test_conversations_of_ones_own_beside_a_copy_do_not_hide_it(tmp_path: Path) -> None:
    write(tmp_path, "ann", "s", session_of("ann"))
    more = [c | {"conversation_id": f"more-{i}"} for i, c in enumerate(session_of("eve") * 2)]
    for i, c in enumerate(more):
        c["messages"] = asked(c["scenario"], text(f"more {i}"), text(f"again {i}"))["messages"]
    write(tmp_path, "eve", "s", [*session_of("ann"), *more], date="2026-03-01")
    found = ranks_and_reasons(tmp_path)
    for agent, other, n in (("ann", "eve", 8), ("eve", "ann", 24)):
        how = f"have the same text: 8 of {n} conversations share 100% of it"
        assert f"copied session: s and {other}'s session s {how}" in found[agent][1]


NOT_COUNTING: dict[str, dict[str, Any]] = {
    "invalid": {"invalid_reason": "The database was down."},
    "another version": {"methodology_versions": ["1.2.0"]},
    "any version": {"methodology_versions": "any"},
    "superseded": {"date": "2025-01-01"},
}


@pytest.mark.parametrize(("date", "n_words"), [("2026-03-01", 50), ("2026-05-01", 15)])
@pytest.mark.parametrize("name", NOT_COUNTING)
@pytest.mark.parametrize("thief", ["ann", "eve"], ids=["own", "of another agent"])
def test_a_copy_of_a_session_that_does_not_count_earns_no_rank(
    tmp_path: Path, name: str, n_words: int, date: str, thief: str
) -> None:
    write(tmp_path, "ann", "source", session_of("x", n_words), **{"date": "2026-04-01"} | NOT_COUNTING[name])
    write(tmp_path, "ann", "later", session_of("later"), date="2026-06-01")
    copied = session_of("x", n_words, DISGUISES["one word more"])
    run = {"benchmark_id": "later"} if thief == "ann" else {}
    write(tmp_path, thief, "copy", copied, date=date, methodology_versions=["1.3.0"], **run)
    found = ranks_and_reasons(tmp_path)
    assert {rank for rank, _ in found.values()} == {None}
    sides = {"ann": "copy is a near copy of source"} if thief == "ann" else {
        "ann": "source and eve's session copy", "eve": "copy and ann's session source"
    }  # fmt: skip
    for agent, said in sides.items():
        assert any(text.startswith(f"copied session: {said}") for text in found[agent][1])


def test_what_two_texts_quote_from_a_source_does_not_make_them_copies() -> None:
    policy = text("policy", 40)
    said = [TextSketch.of([f"{text(who, 12)} {policy}"], [policy]) for who in "ab"]
    plain = [TextSketch.of([f"{policy} {text(who, 1)}"], [policy]) for who in "ab"]
    assert said[0] is not None and said[1] is not None  # noqa: PT018
    assert plain[0] is not None and plain[1] is not None  # noqa: PT018
    assert TextSketch.read(said[0].text()) == said[0]
    assert containment(said[0], said[1]) < 0.2
    assert containment(plain[0], plain[1]) > NEAR  # next to nothing of their own
    assert containment(plain[0], plain[1], of_two_agents=True) == 0
    alone = TextSketch.of([policy])
    assert alone is not None
    assert containment(alone, plain[0], of_two_agents=True) > NEAR  # only one of them was given it


@pytest.mark.parametrize("given", ["user", "policy", "knowledge"])
def test_agents_that_must_say_what_they_were_given_keep_their_ranks(tmp_path: Path, given: str) -> None:
    for name in "ab":
        made = session_of("task", 60)
        for c in made:
            texts = [m["content"] for m in c["messages"] if m["role"] == "assistant"]
            if given == "user":
                c["messages"][0]["content"] += " ".join(["Correct this text:", *texts])
            elif given == "policy":
                c["metadata"] = {"policy": " ".join(texts)}
            else:
                c["knowledge"] = texts
            c["messages"][-1]["content"] += f" {text(name, 4)}"
        write(tmp_path, name, "s", made)
    assert {name: rank for name, (rank, _) in ranks_and_reasons(tmp_path).items()} == {"a": 1, "b": 1}


def test_fillers_and_numbers_between_the_words_do_not_make_another_text() -> None:
    words = text("ada", 60).split()
    plain = TextSketch.of([" ".join(words)])
    for filler in ("um", "{i}"):
        filled = " ".join(f"{w} {filler.format(i=i)}" if i % 3 else w for i, w in enumerate(words))
        sketch = TextSketch.of([filled])
        assert plain is not None and sketch is not None  # noqa: PT018
        assert containment(plain, sketch) >= NEAR
