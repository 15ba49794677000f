"""Set the tags by which the catalog filters assets, and the links from assets to their documentation."""

from collections.abc import Mapping

import dagster as dg

from agent_eval.defs.partitions import shape_of
from agent_eval.tables import TABLES
from agent_eval.tables.schema import INTERNAL, SOURCES

LAYERS: Mapping[str, str] = {
    "ingest": "raw",
    "judging": "judged",
    "errors": "aggregated",
    "scores": "aggregated",
    "boards": "published",
}
"""Asset group → layer: the distance of the group's tables from the transcripts."""


def tagged(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the spec with tags `domain` (its group), `layer` and `partition`, and a link to its table's page."""
    group, name = spec.group_name or "default", spec.key.path[-1]
    tags = {
        "domain": group,
        "layer": "source" if name in SOURCES else LAYERS[group],
        "partition": shape_of(spec.partitions_def).replace(" ", "-"),
    }
    tables = "docs/contributing/internal-tables.md" if name in INTERNAL else "docs/reference/tables.md"
    page = f"{tables}#{name}" if name in TABLES else "docs/architecture.md"
    return spec.merge_attributes(tags=tags, metadata={"docs": dg.MetadataValue.path(page)})
