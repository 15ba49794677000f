"""Read the lines of a CSV file, with commas, semicolons or tabs between the cells."""

import codecs
import csv
import io
from collections.abc import Iterator
from pathlib import Path

from agent_eval.formats.files import unreadable
from agent_eval.formats.streams import MEGABYTE

LARGEST = 50 * MEGABYTE  # some hundred thousand ratings by people


def csv_lines(path: Path) -> Iterator[tuple[int, list[str] | str]]:
    """Yield line and cells, the header first; or line and the reason why nothing more can be read.

    Cells are separated by that of comma, semicolon and tab which the first line has most of. Empty lines are left out.
    UTF-16 is read if the file says so in its first two bytes, as spreadsheet programs write it. A file that cannot be
    read, is larger than 50 MB or is not UTF-8 has one reason, with line 0.
    """
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST + 1)
        if len(raw) > LARGEST:
            yield 0, f"the file is larger than {LARGEST // MEGABYTE} MB; split it into several files"
            return
        text = raw.decode(
            "utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
        )
    except OSError as error:
        yield 0, unreadable(error)
        return
    except UnicodeDecodeError as error:
        yield (
            0,
            f"the file is not {error.encoding.upper()} ({error.reason} at byte {error.start}); save it as UTF-8",
        )
        return
    csv.field_size_limit(LARGEST)  # process-wide; the default stops at a rationale of 131,072 characters
    head = text.split("\n", 1)[0]
    separator = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for cells in reader:
            if line == 1 or any(cell.strip() for cell in cells):
                yield line, [cell.strip() for cell in cells]
            line = reader.line_num + 1
    except csv.Error as error:
        yield line, f"no CSV from here on ({error}); quote cells that hold separators, quotes or line breaks"
