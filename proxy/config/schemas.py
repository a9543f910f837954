"""Schemas as YAML files: ``name`` and ``fields`` of each. The definition itself is that of ``/api/schemas`` (``model.definition``)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proxy.config.declared import Declarations, Kind, read_files
from proxy.errors import Code
from proxy.model.definition import read_definition
from proxy.model.schema import Schema

_KIND: Final = Kind("schema", "`name:` and `fields:`", Code.INVALID_SCHEMA, read_definition)


def read_schemas(paths: Sequence[Path]) -> Declarations[Schema]:
    """The schemas of files. Raises ``VaultError(INVALID_SCHEMA)`` with every fault of all files."""
    return read_files(_KIND, paths)
