"""The descriptions of all operations, by the name that the table of operations has for each."""

from typing import Final

from proxy.api.openapi import (
    about,
    baits,
    clients,
    environments,
    exporting,
    files,
    functions,
    keys,
    models,
    policies,
    pop,
    rehash,
    schemas,
)
from proxy.api.openapi.parts import Description
from proxy.api.openapi.records import DESCRIBED as OF_RECORDS

DESCRIBED: Final[dict[str, Description]] = {
    **models.DESCRIBED,
    **OF_RECORDS,
    **rehash.DESCRIBED,
    **pop.DESCRIBED,
    **schemas.DESCRIBED,
    **exporting.DESCRIBED,
    **functions.DESCRIBED,
    **files.DESCRIBED,
    **clients.DESCRIBED,
    **environments.DESCRIBED,
    **keys.DESCRIBED,
    **policies.DESCRIBED,
    **baits.DESCRIBED,
    **about.DESCRIBED,
}
