"""Builds data/ from tests/sample/authored: `python -m tests.sample.build [OUT] [--check-only FILE…]`."""

import argparse
import sys
from pathlib import Path

from tests.sample.check import AuthoredSampleError, read_authored


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check-only", nargs="+", type=Path, metavar="FILE", help="validate, write nothing")
    arguments = parser.parse_args()
    code = 0
    for path in arguments.check_only:
        try:
            read_authored(path)
            sys.stdout.write(f"{path.name}: ok\n")
        except AuthoredSampleError as error:
            sys.stdout.write(f"{path.name}: {error}\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
