"""Read the table [store] with the locations of a DuckLake's catalog and files; passwords are rejected."""

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from pydantic import BaseModel, Discriminator, Field, Tag, field_validator

_PREFIX = "postgres:"
_PORT = r"\d+/[^@?]*\?\w+="  # port, database and the first parameter, whose value may contain an @
_PASSWORD = re.compile(rf"password\s*=|//[^@/]*:(?!{_PORT}).*@", re.IGNORECASE)  # may contain a slash


class LakeSettings(BaseModel, frozen=True, extra="forbid"):
    """Define a store that several workers share."""

    kind: Literal["ducklake"] = Field(description="Kind of the store.")
    catalog: str = Field(
        description="`postgres:` and a libpq connection string of a Postgres database, e.g. "
        "`postgres:host=db dbname=agent_eval user=agent_eval`; the password is read from PGPASSWORD or PGPASSFILE."
    )
    data: Path = Field(
        description="Folder of the Parquet files, which all workers must mount under the same path."
    )

    @field_validator("catalog")
    @classmethod
    def _has_no_password(cls, value: str) -> str:
        if not value.startswith(_PREFIX) or not value.isprintable():
            raise ValueError(
                "expected `postgres:` and the address of a database, e.g. postgres:host=db dbname=x"
            )
        if _PASSWORD.search(value) or _PASSWORD.search(unquote(value)):
            raise ValueError(
                "it contains a password; remove it and set PGPASSWORD or PGPASSFILE in the environment"
            )
        return value

    @field_validator("data")
    @classmethod
    def _is_a_folder(cls, value: Path) -> Path:
        if re.match(r"\w+:/", str(value)):
            raise ValueError("expected a folder that every worker mounts; object stores are not supported")
        if not str(value).isprintable():
            raise ValueError("expected a path, without control characters")
        return value

    @property
    def address(self) -> str:
        """Return the libpq connection string or URL of the catalog."""
        rest = self.catalog.removeprefix(_PREFIX)
        return _PREFIX + rest if rest.startswith("//") else rest


StoreSetting = (
    Annotated[
        Annotated[Path, Tag("[file]")] | Annotated[LakeSettings, Tag("[lake]")],
        Discriminator(lambda value: "[lake]" if isinstance(value, dict | LakeSettings) else "[file]"),
    ]
    | None
)
"""The path of a DuckDB file, or a table [store]."""
