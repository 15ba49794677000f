"""docs/reference says what the code says."""

import pytest

from agent_eval.settings import Settings
from tests.docs import graph, reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    written = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == reference.PAGES[name](), f"run {reference.COMMAND}"


@pytest.mark.parametrize("name", reference.PARTS)
def test_the_generated_parts_of_a_page_are_up_to_date(name: str) -> None:
    written = (reference.ROOT / name).read_text(encoding="utf-8")
    assert written == reference.with_parts(name), f"run {reference.COMMAND}"


def test_the_graph_of_assets_is_up_to_date() -> None:
    written = graph.PAGE.read_text(encoding="utf-8")
    assert written == graph.page_with_graph(written), f"run {graph.COMMAND}"


def test_every_setting_says_what_it_does() -> None:
    silent = [name for name, field in Settings.model_fields.items() if not field.description]
    assert silent == []


def test_a_setting_is_told_with_its_kind_limits_and_default() -> None:
    assert "- `judge_concurrency` (integer from 1 to 1000; `16`): " in reference.settings_page()
    assert "- `metrics_off` (list of texts): " in reference.settings_page()
    assert "- `judge_combine` (`median`, `mean`; `median`): " in reference.settings_page()


def test_every_kind_of_error_has_its_own_code_cause_and_fix() -> None:
    kinds = reference.kinds_of_errors()
    assert len({kind.code for kind in kinds}) == len(kinds) > 20
    assert [kind.__name__ for kind in kinds if not all(reference.cause_and_fix(kind))] == []
