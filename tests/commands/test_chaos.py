"""The short form of `python -m benchmarks.chaos`: a store that cannot grow.

Kills of a judging run: test_spending.py and test_interruption.py; a journal that cannot grow: tests/storage.
"""

from collections.abc import Iterator

import pytest

from benchmarks import chaos
from benchmarks.judge_server import mock_judge
from benchmarks.warm import command


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chaos.Ground]:
    with mock_judge() as judge:
        yield chaos.Ground(tmp_path_factory.mktemp("chaos"), judge, plainly=command())


@pytest.mark.slow
@pytest.mark.xdist_group("chaos")
def test_after_a_disturbance_one_plain_run_puts_all_in_order(ground: chaos.Ground) -> None:
    assert list(chaos.tried(ground, chaos.store_full, [7])) == []
