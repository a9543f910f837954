"""Access policies as YAML files. The body of each is that of ``/api/policies`` (``model.policy``), with its ``name``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proxy.config.declared import Declarations, Kind, read_files
from proxy.errors import Code
from proxy.model.policy import Policy, read_policy

_KIND: Final = Kind("policy", "`name:`, `schema:` and `actions:`", Code.INVALID_POLICY, read_policy)


def read_policies(paths: Sequence[Path]) -> Declarations[Policy]:
    """The policies of files. Raises ``VaultError(INVALID_POLICY)`` with every fault of all files."""
    return read_files(_KIND, paths)
