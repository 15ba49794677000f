"""Read the lines of a CSV file with commas, semicolons or tabs as separators."""

import codecs
import csv
import io
from collections.abc import Iterator
from pathlib import Path

from agent_eval.formats.files import unreadable
from agent_eval.formats.streams import MEGABYTE

LARGEST = 50 * MEGABYTE  # several hundred thousand human ratings


def csv_lines(path: Path) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the line number and cells of each line, or the line number and the reason why reading stopped.

    The header is yielded first, and empty lines are skipped. The separator is the most frequent of comma, semicolon and
    tab in the first line. UTF-16 with a byte order mark, as written by spreadsheet programs, is also read. For a file
    that is unreadable, larger than 50 MB or not valid UTF-8 or UTF-16, only the reason is yielded, with line 0.
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
    csv.field_size_limit(LARGEST)  # process-wide; by default, a cell has at most 131,072 characters
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
        yield line, f"invalid CSV from here on ({error}); quote cells with separators, quotes or line breaks"
