"""The data firewall: whether a caller is inside the country of the instance, or in a network that
is let in.

Inside are: this machine (loopback), the networks of ``firewall.allow``, and addresses that the
database places in the country. Everything else is outside, also unknown addresses: private
networks, gaps of the database, callers that a proxy does not report. An address counts as a
caller's only if it connects directly, or a trusted proxy reports it.

A request from this machine or a private network that is no trusted proxy, but says that it was
forwarded, is outside as well: a proxy stands there that the operator forgot to name, and behind it
is the world.
"""

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from proxy.errors import Code, VaultError
from proxy.net.client_address import (
    IpNetwork,
    Trusted,
    in_networks,
    is_special_address,
    loopback,
    reported_caller,
)
from proxy.redactor.message import RawHeaders
from proxy.telemetry import logs

if TYPE_CHECKING:
    from proxy.edge.geoip import Countries

_log = logs.logger("firewall")

#: Addresses whose place is remembered; forgotten all together.
_CAPACITY: Final = 16_384

#: Longest cached text of a proxy: two addresses.
_SHORT: Final = 96

#: Fields of forwarded requests.
PASSED_ON: Final = ("x-forwarded-for", "forwarded", "x-real-ip")

_PASSED_ON: Final = frozenset(name.encode() for name in PASSED_ON)


class Mode(enum.StrEnum):
    """Treatment of callers outside the country."""

    OFF = "off"  #: whatever everybody gets
    BLOCK = "block"  #: nothing
    MASK = "mask"  #: nothing in clear


class _Zone(enum.Enum):
    """Zone of requests that come straight from an address."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    ASK = "ask"  #: what its forwarding fields say


def firewall_refusal() -> VaultError:
    """The answer to callers outside."""
    return VaultError(Code.OUTSIDE_COUNTRY, "Requests are answered only from inside the country.")


class Firewall:
    """``mode`` and ``allow`` are those of the settings.

    Without ``countries`` only ``allow`` and this machine are inside.
    """

    def __init__(
        self,
        mode: Mode,
        country: str,
        allow: Sequence[IpNetwork],
        countries: "Countries | None",
        trusted: Trusted,
    ) -> None:
        self.mode = mode
        self.countries = countries
        self._country = country
        self._allow = tuple(allow)
        self._trusted = trusted
        self._zones: dict[str, _Zone] = {}
        self._verdicts: dict[tuple[str, str], bool] = {}  #: by peer and its forwarding field
        self._edition = None if countries is None else countries.database

    def straight(self, peer: str) -> bool | None:
        """Whether every request of the peer is from outside; ``None``: its fields decide."""
        zone = self._zone(peer)
        return None if zone is _Zone.ASK else zone is _Zone.OUTSIDE

    def outside(self, peer: str, chain: Sequence[str], disguised: bool) -> bool:
        """Whether a request of that peer comes from outside.

        ``chain`` is its ``X-Forwarded-For``, field by field; ``disguised``: another of its fields
        says that it was passed on.
        """
        zone = self._zone(peer)
        if zone is not _Zone.ASK:
            return zone is _Zone.OUTSIDE
        if not self._trusted.holds(peer):
            return disguised or bool(chain)
        if len(chain) != 1 or len(chain[0]) > _SHORT:
            return self._beyond(peer, chain, disguised)
        verdict = self._verdicts.get((peer, chain[0]))
        if verdict is None:
            if len(self._verdicts) >= _CAPACITY:
                self._verdicts.clear()
            verdict = self._verdicts[peer, chain[0]] = self._beyond(peer, chain, disguised)
        return verdict

    def _beyond(self, peer: str, chain: Sequence[str], disguised: bool) -> bool:
        """Whether the caller that a trusted proxy reports is outside.

        A proxy that the operator forgot to name may also stand before one that is named: at an
        address of its own machine, or at a private one which says that it passes a request on.
        """
        host, whole, before = reported_caller(peer, chain, self._trusted)
        if not whole or (disguised and not chain):
            return True
        if is_special_address(host) and not self._trusted.holds(host):
            local = loopback(host) and not in_networks(host, self._allow)
            return before or local or not self._inside(host)
        return not self._inside(host)

    def outside_raw(self, peer: str, headers: RawHeaders) -> bool:
        """The same for raw fields."""
        zone = self._zone(peer)
        if zone is not _Zone.ASK:
            return zone is _Zone.OUTSIDE
        passed_on = [(name.lower(), value) for name, value in headers if name.lower() in _PASSED_ON]
        chain = [value.decode("latin-1") for name, value in passed_on if name == b"x-forwarded-for"]
        return self.outside(peer, chain, len(chain) < len(passed_on))

    def _zone(self, peer: str) -> _Zone:
        if self.countries is not None and self.countries.database is not self._edition:
            self._edition = self.countries.database
            self._zones.clear()
            self._verdicts.clear()
        zone = self._zones.get(peer)
        if zone is None:
            if len(self._zones) >= _CAPACITY:
                self._zones.clear()
            zone = self._zones[peer] = self._determine(peer)
        return zone

    def _determine(self, peer: str) -> _Zone:
        if not peer:
            return _Zone.OUTSIDE
        if self._trusted.holds(peer):
            return _Zone.ASK
        if not self._inside(peer):
            return _Zone.OUTSIDE
        return _Zone.ASK if is_special_address(peer) else _Zone.INSIDE

    def _inside(self, host: str) -> bool:
        if loopback(host) or in_networks(host, self._allow):
            return True
        if self._edition is None or is_special_address(host):
            return False
        try:
            return self._edition.country(host) == self._country
        except VaultError as error:
            _log.error("an address could not be located and counts as outside", fault=error)
            return False
