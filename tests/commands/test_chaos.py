"""The short form of `python -m benchmarks.chaos`: one kill, a journal and a store that cannot grow."""

from collections.abc import Iterator

import pytest

from benchmarks import chaos
from benchmarks.judge_server import mock_judge


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chaos.Ground]:
    with mock_judge() as judge:
        yield chaos.Ground(tmp_path_factory.mktemp("chaos"), judge)


@pytest.mark.slow
@pytest.mark.xdist_group("chaos")
def test_after_a_disturbance_one_plain_run_puts_all_in_order(ground: chaos.Ground) -> None:
    kinds = [chaos.killed_while_judging, chaos.journal_full, chaos.store_full]
    assert [harm for kind in kinds for harm in chaos.tried(ground, kind, [7])] == []
