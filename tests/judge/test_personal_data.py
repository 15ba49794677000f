"""Personal data never reaches a prompt: which values are replaced, which stay, and what a placeholder says."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.errors import ConfigurationError
from agent_eval.judge.evidence import Transcript
from agent_eval.judge.prompts import BlindedTerms
from agent_eval.judge.prompts.personal_data import PLACEHOLDER, Redactor
from agent_eval.transcripts.models import Agent
from tests.judge.material import agent, call, conversation, user

HIDDEN = {  # each text is one value of its kind
    "email": ["Ada@example.com", "ada.b+c@mail.example.co.uk", "o'neil@example.org", "ada%40example.com", "ä@bücher.de"],
    "phone": [
        "+49 30 1234567", "+1 (555) 123-4567", "0049 30 1234567", "(555) 123-4567", "555-123-4567",
        "+44 (0)20 7946 0958", "030/1234567", "01 23 45 67 89", "01.23.45.67.89", "01632 960001", "+15551234567",
    ],
    "card": ["4111111111111111", "4111 1111 1111 1111", "5500-0000-0000-0004", "378282246310005", "6011000990139424"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "de89370400440532013000"],
}  # fmt: skip
KEPT = [
    "order 1042", "2024-01-15 10:30", "15.01.2024", "01.02.2024 10:30", "192.168.100.200", "version 1.10.0", "4111111111111112",
    "DE89370400440532013001", "$1,234,567.89", "1700000000000", "0.123456789", "user@localhost", "a@b", "@mention", "42-1234-567",
    "[agent] said", "2024/05/06 07:08:09", "550e8400-e29b-41d4-a716-446655440000",
]  # fmt: skip
CASES = [(kind, value) for kind, values in HIDDEN.items() for value in values]


def redactor(**own: object) -> Redactor:
    return Redactor(b"k" * 32, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "value"), CASES)
def test_a_value_is_replaced_whole_wherever_it_stands(kind: str, value: str) -> None:
    for around in ("{}", "Write to {}, please", '{{"x": "{}"}}', "<{}>", "7,{},12/27\n", "{}."):
        wanted = re.escape(around.format("@@")).replace("@@", rf"\[{kind} [0-9a-f]{{8}}\]")
        assert re.fullmatch(wanted, shown := redactor().hide(around.format(value))), shown


@pytest.mark.parametrize("text", KEPT)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redactor().hide(text) == text


def test_a_card_is_found_among_other_groups_of_digits() -> None:
    assert re.fullmatch(r"12 \[card \w+\] 123", redactor().hide("12 4111 1111 1111 1111 123"))


@given(
    st.lists(st.sampled_from([v for _, v in CASES] + KEPT + [" ", "\n", "x", ",", "7"]), max_size=8).map(
        "".join
    )
)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redactor().hide(text)
    assert redactor().hide(once) == once


def test_one_value_has_one_placeholder_in_a_project_however_it_is_written() -> None:
    spellings = [
        ["Ada@Example.com", "ada@example.com"],
        ["4111111111111111", "4111-1111-1111-1111"],
        ["+49 30 1234567", "0049301234567"],
    ]
    for same in spellings:
        assert len({redactor().hide(text) for text in same}) == 1
    others = ["a@example.com", "b@example.com", "4111111111111111", "378282246310005", "+15551234567"]
    assert len({redactor().hide(value) for value in others}) == len(others)
    assert Redactor(b"other" * 8).hide("a@example.com") != redactor().hide("a@example.com")


def test_values_keys_and_numbers_of_json_are_replaced_and_nothing_is_lost() -> None:
    value = {
        "card": 4111111111111111,
        "Ada@example.com": 1,
        "ada@example.com": 2,
        "n": [1.5, True, None, "x"],
    }
    shown = redactor().hide_in(value)  # type: ignore[arg-type]
    assert isinstance(shown, dict)
    assert len(shown) == len(value)
    assert "example.com" not in str(shown)
    assert str(shown["card"]).startswith("[card ")
    assert shown["n"] == [1.5, True, None, "x"]


def people(text: str) -> list[tuple[str, str]]:
    return [("person", name) for name in ("Ada Lovelace",) if name in text]


def failing(text: str) -> list[str]:
    raise KeyError(text)


def test_own_patterns_and_an_own_function_add_kinds_and_a_failing_one_lets_nothing_through() -> None:
    own = redactor(patterns={"customer": r"C-\d{3}", "domain": "example.com"}, function=f"{__name__}:people")
    shown = own.hide("Ada Lovelace, C-123, a@example.com")
    assert re.fullmatch(r"\[person \w+\], \[customer \w+\], \[email \w+\]", shown)
    assert own.counts == {"customer": 1, "email": 1, "person": 1}
    assert own.fingerprint != redactor().fingerprint
    with pytest.raises(ConfigurationError, match="failing failed with KeyError") as raised:
        redactor(function=f"{__name__}:failing").hide("secret text")
    assert "secret text" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="cannot be imported"):
        redactor(function="no_such_module:f")


def test_names_and_personal_data_do_not_break_each_other_and_quotes_hold_in_the_redacted_text() -> None:
    terms = BlindedTerms.of(Agent(agent_id="email", name="Harbor"), redactor())
    said = "Harbor, write to email x@harbor.com"
    turns = conversation(user(said), call("pay", {"card": 4111111111111111}), agent("Done.")).turns()
    shown = terms.hide(said)
    assert re.fullmatch(r"\[agent\], write to \[agent\] \[email \w+\]", shown)
    quote = terms.restore(shown, [redactor().hide(said)])
    assert re.fullmatch(r"Harbor, write to email \[email \w+\]", quote)
    transcript = Transcript(turns, redactor())
    assert transcript.holds(quote)
    assert transcript.holds(said)  # as people quote it
    assert transcript.holds(f'pay({{"card": "{redactor().hide("4111111111111111")}"}})')
    assert not transcript.holds(quote.replace(PLACEHOLDER.findall(quote)[0], "[email 00000000]"))
    assert not Transcript(turns).holds(quote)


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["a", "a.", "a'", "1 ", "1", "DE89 ", "a@", "a@b.", "+1 ", "0", "(0", "[email ", "-1"]
)
def test_a_hostile_text_takes_linear_time(part: str) -> None:
    def seconds(n: int) -> float:
        """The least of three: what else the machine does only adds time."""
        times = []
        for _ in range(3):
            began = time.process_time()
            redactor().hide(part * n)
            times.append(time.process_time() - began)
        return min(times)

    assert seconds(40_000) < 12 * max(seconds(10_000), 0.02)
