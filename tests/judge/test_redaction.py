"""Keys of the environment are found in any usual encoding; what looks like a key is hidden; other words stay."""

import base64
import json
import re
import time
from urllib.parse import quote, quote_plus

import pytest

from agent_eval.judge.llm.redaction import HIDDEN, LONGEST, hide_keys, hide_secrets, redact
from agent_eval.judge.prompts.replies import ReplyError

KEY = "planted/Key+with=odd 0123456789ABCDEF"
RAW = KEY.encode()
ENCODED = {
    "plain": KEY,
    "JSON": json.dumps(KEY),
    "URL": quote(KEY),
    "URL, all of it": quote(KEY, safe=""),
    "form": quote_plus(KEY),
    "every byte": "".join(f"%{byte:02X}" for byte in RAW),
    "base64": base64.b64encode(RAW).decode(),
    "base64 after one byte": base64.b64encode(b"u:" + RAW + b":x").decode(),
    "base64 after two bytes": base64.b64encode(b"u" + RAW).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(b"user:" + RAW).decode(),
    "hexadecimal": RAW.hex().upper(),
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", KEY)


@pytest.mark.parametrize("form", ENCODED)
def test_a_key_is_hidden_in_every_encoding(form: str) -> None:
    shown = re.fullmatch(r"before (.*) after", hide_keys(f"before {ENCODED[form]} after"))
    assert shown
    assert HIDDEN in shown[1]
    left = shown[1].replace(HIDDEN, "")
    assert len(left) <= len("dXNlcjE6") + 4  # what base64 packs with the bytes beside the key
    assert HIDDEN in hide_keys(f"before {ENCODED[form].upper()} after")


@pytest.mark.parametrize("n_before", [0, 20, 45, 60, 79])
@pytest.mark.parametrize("form", ENCODED)
def test_a_bad_reply_shows_no_part_of_a_key(form: str, n_before: int) -> None:
    shown = str(ReplyError("It was no JSON.", f"{'p' * n_before} {ENCODED[form]} after"))
    begun = shown.partition("began ")[2]
    assert not any(ENCODED[form][i : i + 8] in begun for i in range(4, len(ENCODED[form]) - 12))


@pytest.mark.parametrize(
    "token",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1" * 18,
        "github_pat_" + "a1" * 20,
        "glpat-" + "a1" * 10,
        "xoxb-1234567890-abcdefghij",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "Basic dXNlcjpwYXNzd29yZDEyMw==",
        "sk-abcdefghijklmnop",
    ],
)
def test_a_value_with_the_form_of_a_key_is_hidden(token: str) -> None:
    assert hide_secrets(f"x {token} y") == f"x {HIDDEN} y"


def test_usual_words_about_keys_stay() -> None:
    text = "The token (required) is basic information about the password: changed."
    assert hide_secrets(text) == text


def test_an_error_of_any_size_is_cut_before_it_is_searched() -> None:
    started = time.process_time()
    shown = redact("Bearer " + "a" * 100_000_000)
    assert time.process_time() - started < 5
    assert len(shown) <= LONGEST


@pytest.mark.parametrize("at", range(9_950, 10_010, 3))
def test_a_key_at_the_cut_does_not_show_its_beginning(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    long_key = "k" * 390 + "0123456789"
    monkeypatch.setenv("LONG_SECRET", long_key)
    n, rest = divmod(at - 1, len(long_key) + 1)
    text = f"{long_key} " * n + "." * rest + " " + long_key
    assert "kkkk" not in redact(text)
