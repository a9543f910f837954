"""Who is asked about access outside of this program: the filter endpoints of access policies."""

import ssl

from proxy.config import Settings
from proxy.errors import Code, Detail, VaultError
from proxy.telemetry.metrics import Metrics
from proxy.web.acl_client import AclClient
from proxy.web.upstream.tls import client_context


def acl_client(settings: Settings, metrics: Metrics) -> AclClient:
    """What asks filter endpoints, to be entered. Raises ``VaultError`` (BAD_SETTINGS) if the file with authorities cannot be used."""

    def observe(outcome: str) -> None:
        metrics.cell("domicile_acl_requests_total", outcome).value += 1

    return AclClient(settings.acl.timeout / 1000, acl_context(settings), observe)


def acl_context(settings: Settings) -> ssl.SSLContext:
    """What vouches for filter endpoints; raises as ``acl_client``."""
    try:
        return client_context(settings.acl.authorities)
    except VaultError as error:
        faults = tuple(Detail("acl.authorities", detail.text) for detail in error.details)
        raise VaultError(
            Code.BAD_SETTINGS, "The file for filter endpoints at https:// cannot be used.", faults
        ) from None
