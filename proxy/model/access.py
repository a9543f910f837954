"""Who calls the vault's own interface."""

import msgspec


class Principal(msgspec.Struct, frozen=True):
    """A client that has proved who it is, and what it may do."""

    client: str  #: its identifier; stands in the history of what it writes
    environment: str
    admin: bool = False  #: may also change schemas, clients and policies
    policies: tuple[str, ...] = ()  #: the access policies it is under; none: everything in its environment
