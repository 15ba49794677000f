"""Import foreign formats, one module per format; only `importing` writes the native form.

Each module converts the records of its format, one at a time, to conversations or, if they are invalid, to `Refusal`
objects; `importing` writes both. `auto` imports many files, `detection` detects their formats, and `inputs` finds
them. To add a format, see docs/contributing/add-a-format.md.
"""

from pathlib import Path

FAMILIES = ("benchmarks", "chats", "coding", "traces")
"""The folders of formats: each of their modules is a format."""
FORMAT_NAMES = {
    path.stem.replace("_", "-"): f"{__name__}.{family}.{path.stem}"
    for family in FAMILIES
    for path in sorted(Path(__file__).with_name(family).glob("[!_]*.py"))
}
"""The module of each format by the format's name; reading it imports no format, so that commands can name them."""
