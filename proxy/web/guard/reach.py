"""Where filter endpoints may be that others than the operator name: which hosts and addresses may be asked in their name.

Whoever administers an environment of his own could else have this program send requests to whatever it reaches and he does not:
services of the private network, the metadata of a cloud, its own administration. A name counts only where the list has it, and what it
stands for is looked at again each time a connection is made, for its owner may let it stand for something else by then.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final

import yarl

from proxy.web.guard.networks import special, within
from proxy.web.peers import Network, plain


class Reach:
    """The hosts of ``acl.allow``: names, networks and single addresses. A name reaches public addresses, and of others those of the networks."""

    def __init__(self, allowed: Iterable[str | Network] = ()) -> None:
        given = tuple(allowed)
        self._names = frozenset(item for item in given if isinstance(item, str))
        self._networks = tuple(item for item in given if not isinstance(item, str))

    def names(self, url: str) -> bool:
        """Whether the host of an address, read as by what connects to it, is in the list."""
        try:
            host = (yarl.URL(url).raw_host or "").lower().removesuffix(".")
        except ValueError:
            return False
        return within(plain(host), self._networks) if _is_address(host) else host in self._names

    def leads(self, address: str) -> bool:
        """Whether a name of the list may stand for that IP address."""
        there = plain(address)
        return within(there, self._networks) or not special(there)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


#: Nobody may be asked: what holds where nothing is set.
NOWHERE: Final = Reach()
