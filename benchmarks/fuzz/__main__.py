"""The long run: `python -m benchmarks.fuzz --minutes 5 [--door sessions]`. What fails is made small and shown."""

import argparse
import sys
import time

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.doors import DOORS, attempt

ROUND = 500
STORED = 20  # one input in so many goes through the store as well


def fuzz(door: str, seconds: float) -> int:
    """Try new inputs at a door until the time is over; returns how many. Raises what the first failing one raises."""
    n_tried = 0
    end = time.monotonic() + seconds

    @settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(st.data())
    def a_round(data: st.DataObject) -> None:
        nonlocal n_tried
        given_input = data.draw(DOORS[door].inputs)
        if time.monotonic() < end:  # the round must be drawn to its end all the same
            n_tried += 1
            attempt(door, given_input, store=n_tried % STORED == 0)

    while time.monotonic() < end:
        a_round()
    return n_tried


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for each door")
    parser.add_argument(
        "--door", choices=sorted(DOORS), action="append", help="default: all, one after the other"
    )
    given_arguments = parser.parse_args()
    for door in given_arguments.door or DOORS:
        n_tried = fuzz(door, 60 * given_arguments.minutes)
        sys.stdout.write(f"{door}: {n_tried:,} inputs, all taken or refused in a line\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
