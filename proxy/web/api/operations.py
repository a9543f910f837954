"""Every operation of the vault's own interface, in one literal table.

A line is a promise: the statuses are those of the interface specification, operation by operation, and the interface document
(``document``) is made of this table.
"""

from typing import Final

from proxy.web.api.operation import Operation

OPERATIONS: Final[tuple[Operation, ...]] = ()
