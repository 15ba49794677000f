"""Define the setting [[inbox]]: files that arrive by themselves and are imported by a sensor."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

AgentId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=128)]


class InboxSetting(BaseModel):
    """Describe the files of one agent that are imported when they are complete."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    glob: str = Field(
        min_length=1,
        description="Pattern of the files; a relative pattern is relative to the project's root.",
    )
    agent: AgentId = Field(description="Id of the agent that the files belong to.")
    format: str = Field(default="auto", description="Format of the files, or `auto`.")
