"""The short profile: some inputs at every door, and some through the store."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.doors import DOORS, attempt

pytestmark = pytest.mark.slow

SHORT = settings(
    max_examples=60,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # what fails is made small by the long run
    suppress_health_check=list(HealthCheck),
)


EXAMPLES = {"methodologies": 15, "sessions": 30, "importers": 40}  # the costly ones; 60 at the others


@pytest.mark.parametrize("door", DOORS)
def test_whatever_comes_to_a_door_is_taken_or_refused_in_a_line(door: str) -> None:
    @settings(SHORT, max_examples=EXAMPLES.get(door, SHORT.max_examples))
    @given(DOORS[door].inputs)
    def each(found: object) -> None:
        attempt(door, found)

    each()


@pytest.mark.parametrize("door", ["sessions", "ratings", "verdicts"])
@settings(SHORT, max_examples=5)
@given(data=st.data())
def test_hostile_text_comes_back_from_the_store_byte_for_byte(door: str, data: st.DataObject) -> None:
    attempt(door, data.draw(DOORS[door].inputs), store=True)
