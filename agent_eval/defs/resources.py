"""Resources build plain objects; only Dagster sees the resource."""

import dagster as dg

from agent_eval.project import Project


class ProjectResource(dg.ConfigurableResource[Project]):
    """The project: folders, settings, methodology versions, store. `root` empty: found by the root rule."""

    root: str | None = None

    def create_resource(self, context: dg.InitResourceContext) -> Project:
        return Project.open(self.root)
