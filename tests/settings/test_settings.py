"""Settings: what cannot be meant is refused by name, and never left out in silence."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_eval.errors import AgentEvalError
from agent_eval.settings import (
    FILE,
    BudgetSettings,
    SettingsError,
    misplaced_caps,
    read_settings,
    unknown_variables,
)
from agent_eval.settings.home import find_root
from agent_eval.settings.lake import LakeSettings


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'data_dir = "a\\u0000b"', "'data_dir'.*expected a path"),
        (b'store = ""', "'store'.*expected a path"),
        (b"max_unscored_share = nan", "'max_unscored_share'"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b"\xff", "not UTF-8 at byte 1"),
        (b"#" * 100_001, "larger than 100,000 bytes"),
        (b"x = 1\nx = 2", "Cannot overwrite a value"),
        (b"[budget]\nmax_calls = -1", "'budget.max_calls'.*Maximum number of judge calls in one run"),
        (b"max_calls = -1", "'budget.max_calls'.*Maximum number of judge calls in one run"),
        (b"[budget]\nmax_call = 1", "Did you mean 'max_calls'.*max_cost_usd_per_day"),
        (b"budget = 3\nmax_calls = 1", "'budget'"),
    ],
)
def test_a_bad_settings_file_names_what_is_wrong(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(SettingsError, match=reason):
        read_settings(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'\xef\xbb\xbfdata_dir = "elsewhere"')
    assert read_settings(tmp_path).data_dir == Path("elsewhere")


@pytest.mark.parametrize(
    "make",
    [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere"), lambda path: path.symlink_to(path)],
)
def test_what_stands_in_the_place_of_the_file_is_not_passed_over(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / FILE)
    assert find_root(tmp_path) == tmp_path
    with pytest.raises(SettingsError, match="it is not a file"):
        read_settings(tmp_path)


def test_a_project_whose_name_no_store_can_have_is_refused(tmp_path: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    (root / "data").mkdir(parents=True)
    with pytest.raises(AgentEvalError, match="not UTF-8"):
        find_root(root)


LAKE = """[store]
kind = "ducklake"
catalog = "{}"
data = "{}"
"""


@pytest.mark.parametrize(
    ("catalog", "data", "reason"),
    [
        ("postgres:host=db password=S3cret", "d", "store.catalog.*remove it and set PGPASSWORD"),
        ("postgres:host=db PassWord = 'S3cret'", "d", "store.catalog.*contains a password"),
        ("postgres://user:S3cret@db/x", "d", "store.catalog.*contains a password"),
        ("postgres://user:a/S3cret@db/x", "d", "store.catalog.*contains a password"),
        ("postgres://user:1/S3cret@db/x?user=a", "d", "store.catalog.*contains a password"),
        ("postgres://user:S3cret?/a@db/x", "d", "store.catalog.*contains a password"),
        ("postgres://user:1?S3cret=a@db/x", "d", "store.catalog.*contains a password"),
        ("postgres://user:1%2FS3cret?a=b@db/x", "d", "store.catalog.*contains a password"),
        ("postgres:postgresql://db/x?pass%77ord=S3cret", "d", "store.catalog.*contains a password"),
        ("mysql:host=S3cret", "d", "store.catalog.*expected `postgres:`"),
        ("postgres:host=db", "s3://bucket/S3cret", "store.data.*object stores are not supported"),
    ],
)
def test_a_lake_in_the_settings_holds_no_password(
    tmp_path: Path, catalog: str, data: str, reason: str
) -> None:
    (tmp_path / FILE).write_text(LAKE.format(catalog, data))
    with pytest.raises(SettingsError, match=reason) as raised:
        read_settings(tmp_path)
    assert "S3cret" not in str(raised.value)


@pytest.mark.parametrize("catalog", ["postgres://me%40corp@db:5432/x", "postgres://db:5432/x?user=me@corp"])
def test_an_at_sign_in_the_user_name_of_a_lake_is_no_password(tmp_path: Path, catalog: str) -> None:
    (tmp_path / FILE).write_text(LAKE.format(catalog, "d"))
    lake = read_settings(tmp_path).store
    assert isinstance(lake, LakeSettings)
    assert lake.catalog == catalog


def test_a_store_is_a_path_or_a_table_in_the_file_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).write_text(LAKE.format("postgres://user@db/x", "shared/lake"))
    of_file = LakeSettings(kind="ducklake", catalog="postgres://user@db/x", data=Path("shared/lake"))
    assert read_settings(tmp_path).store == of_file
    assert of_file.address == "postgres://user@db/x"
    monkeypatch.setenv("AGENT_EVAL_STORE", "elsewhere.duckdb")
    assert read_settings(tmp_path).store == Path("elsewhere.duckdb")
    monkeypatch.setenv("AGENT_EVAL_STORE", '{"kind": "ducklake", "catalog": "postgres:host=db", "data": "d"}')
    of_environment = LakeSettings(kind="ducklake", catalog="postgres:host=db", data="d")
    assert read_settings(tmp_path).store == of_environment
    monkeypatch.delenv("AGENT_EVAL_STORE")
    (tmp_path / FILE).write_text('[store]\nknd = "ducklake"')
    with pytest.raises(SettingsError, match=r"'store.*Settings: kind, catalog, data"):
        read_settings(tmp_path)


@pytest.mark.parametrize("name", BudgetSettings.model_fields)
def test_a_cap_outside_of_its_table_is_read_with_a_hint(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).write_text(f"[budget]\n{name} = 3\n")
    expected = read_settings(tmp_path)
    assert getattr(expected.budget, name) == 3
    assert misplaced_caps(tmp_path) == []
    (tmp_path / FILE).write_text(f"{name} = 3\n")
    assert read_settings(tmp_path).budget == expected.budget
    assert [name in hint and "[budget]" in hint for hint in misplaced_caps(tmp_path)] == [True]
    monkeypatch.setenv(f"AGENT_EVAL_{name.upper()}", "2")
    assert getattr(read_settings(tmp_path).budget, name) == 2
    assert len(misplaced_caps(tmp_path)) == 2
    monkeypatch.setenv(f"AGENT_EVAL_BUDGET__{name.upper()}", "1")
    assert getattr(read_settings(tmp_path).budget, name) == 1
    assert unknown_variables() == []


def test_a_cap_in_the_environment_is_read_in_small_letters_and_named_in_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("agent_eval_max_calls", "3")
    assert read_settings(tmp_path).budget.max_calls == 3
    assert len(misplaced_caps(tmp_path)) == 1
    monkeypatch.setenv("agent_eval_max_calls", "none")
    with pytest.raises(SettingsError, match=r"or agent_eval_max_calls: "):
        read_settings(tmp_path)
    monkeypatch.delenv("agent_eval_max_calls")
    monkeypatch.setenv("AGENT_EVAL_BUDGET__MAX_CALLS", "none")
    with pytest.raises(SettingsError, match=r"or AGENT_EVAL_BUDGET__MAX_CALLS: "):
        read_settings(tmp_path)


def test_a_cap_in_the_environment_leaves_the_others_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).write_text("max_calls_per_day = 9\n[budget]\nmax_calls = 5\nmax_cost_usd = 2\n")
    monkeypatch.setenv("AGENT_EVAL_BUDGET__MAX_CALLS", "4")
    budget = read_settings(tmp_path).budget
    assert (budget.max_calls, budget.max_cost_usd, budget.max_calls_per_day) == (4, 2, 9)
    monkeypatch.setenv("AGENT_EVAL_BUDGETS__MAX_CALLS", "4")
    assert unknown_variables() == ["AGENT_EVAL_BUDGETS__MAX_CALLS"]
