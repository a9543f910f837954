"""Schemas of records: the catalogue, its stored form, and migrations.

Its face is what stands here; other rooms import nothing else of it.
"""

from proxy.vault.schema_store import Origin, Phase, wake
from proxy.vault.schemas.active import DeclaredSchema
from proxy.vault.schemas.catalog import Applied, Catalog, open_catalog

__all__ = [
    "Applied", "Catalog", "DeclaredSchema", "Origin", "Phase", "open_catalog", "wake",
]  # fmt: skip
