"""The golden files hold what is sent, and a profile's version stands for its words."""

import pytest

from agent_eval.judge.prompts import build, forms, profile, profile_hash, words
from agent_eval.metrics import findings
from agent_eval.metrics.profile import GUIDES, PROFILE_VERSION, REWORDED, SHOWN_ANEW, SINCE, asked_since
from tests.judge.golden_prompts import FOLDER, frozen_profiles, golden_texts

TEXTS = golden_texts()


def test_a_new_profile_version_says_which_questions_it_changed() -> None:
    # Others keep their key: answers that were paid for are not asked again.
    assert PROFILE_VERSION in {SINCE, SHOWN_ANEW, *REWORDED.values()}
    assert (asked_since("helpfulness"), asked_since("U1"), asked_since("U3")) == ("1", "1", "2")


@pytest.mark.parametrize("name", TEXTS)
def test_the_prompt_is_the_golden_one(name: str) -> None:
    golden = (FOLDER / name).read_text(encoding="utf-8")
    assert TEXTS[name] == golden, "read the diff, then: python -m tests.judge.golden_prompts"


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in FOLDER.glob("*.txt")} == TEXTS.keys()


def test_changed_words_of_the_prompts_need_a_new_profile_version() -> None:
    # raise PROFILE_VERSION in agent_eval/metrics/profile.py, then: python -m tests.judge.golden_prompts
    assert frozen_profiles()[PROFILE_VERSION] == profile_hash()


@pytest.mark.parametrize("name", [name for name in vars(words) if name.isupper()])
def test_every_constant_of_words_is_part_of_the_profiles_hash(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, name, f"{getattr(words, name)} Or else.")
    assert _hash_anew() != frozen_profiles()[PROFILE_VERSION]


def test_the_words_of_rules_and_forms_are_part_of_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GUIDES, "U6", "Look elsewhere.")
    changed = {_hash_anew()}
    monkeypatch.undo()
    monkeypatch.setitem(findings._WHERE, "last_reply", " somewhere")
    changed.add(_hash_anew())
    monkeypatch.undo()
    monkeypatch.setattr(profile, "PROFILE_HASH", "another")
    changed.add(_hash_anew())
    assert len(changed - {frozen_profiles()[PROFILE_VERSION]}) == 3


def _hash_anew() -> str:
    """The hash as it would be in a new process."""
    caches = (build.system_prompt, forms.schema_of)
    for cached in caches:
        cached.cache_clear()
    found = profile.profile_hash.__wrapped__()
    for cached in caches:
        cached.cache_clear()
    return found
