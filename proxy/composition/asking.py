"""Who is asked about access outside of this program: filter endpoints of access policies, and an external issuer of tokens."""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from proxy.auth.external import ByIntrospection, ByKeys, Expected, External
from proxy.clock import Clock
from proxy.composition.secrets import read_secret, scraper_secret
from proxy.config import Settings
from proxy.errors import Code, Detail, VaultError
from proxy.telemetry.metrics import Metrics
from proxy.web.acl_client import AclClient
from proxy.web.api.access import bearer
from proxy.web.api.operation import Services
from proxy.web.guard.reach import Reach
from proxy.web.issuer_client import IssuerClient
from proxy.web.outbound import Outbound
from proxy.web.upstream.tls import client_context

#: Seconds within which the issuer has to answer.
_ISSUER: Final = 5.0


@asynccontextmanager
async def asking(services: Services, settings: Settings, metrics: Metrics, clock: Clock) -> AsyncIterator[None]:
    """Let the services ask whom the settings name. Raises ``VaultError`` (BAD_SETTINGS) for files that cannot be used."""

    def observe(outcome: str) -> None:
        metrics.cell("domicile_acl_requests_total", outcome).value += 1

    async with AsyncExitStack() as stack:
        seconds, context = settings.acl.timeout / 1000, _context(settings.acl.authorities, "acl.authorities")
        services.acl = AclClient(await stack.enter_async_context(Outbound(seconds, context)), observe)
        services.reach = Reach(settings.acl.allow)
        bounded = Outbound(seconds, context, services.reach)
        services.acl_elsewhere = AclClient(await stack.enter_async_context(bounded), observe)
        if settings.auth.issuer is not None:
            context = _context(settings.auth.issuer_authorities, "auth.issuer_authorities")
            outbound = await stack.enter_async_context(Outbound(_ISSUER, context))
            services.access = bearer(services.auth.tokens, external(services, settings, outbound, clock))
        yield


def external(services: Services, settings: Settings, outbound: Outbound, clock: Clock) -> External:
    """What knows whom tokens of the external issuer stand for; raises as ``asking``."""
    given = settings.auth
    if given.issuer is None:
        raise ValueError("the settings name no external issuer")
    secret = None
    if given.introspection_credentials is not None:
        secret = read_secret(given.introspection_credentials, "auth.introspection_credentials")
    client = IssuerClient(outbound, given.issuer.url, secret)
    issuer = ByKeys(client.keys, clock) if given.issuer.how == "jwks" else ByIntrospection(client.introspect, clock)
    audience = _among(given.issuer_audiences) if given.issuer_audiences else services.auth.audiences.meets
    optional = given.introspection_optional_claims
    expected = Expected(given.issuer_name, audience, given.environment_claim, given.client_claim, optional)
    return External(issuer, services.auth.clients, expected, clock)


def check_asking(settings: Settings) -> str:
    """How tokens of an external issuer are taken. Raises what a start would say of the files for what is asked outside."""
    _context(settings.acl.authorities, "acl.authorities")
    if settings.auth.issuer is not None:
        _context(settings.auth.issuer_authorities, "auth.issuer_authorities")
    if settings.auth.introspection_credentials is not None:
        read_secret(settings.auth.introspection_credentials, "auth.introspection_credentials")
    scraper_secret(settings)
    given = settings.auth
    if given.issuer is None:
        return ""
    optional = sorted(given.introspection_optional_claims)
    lacking = f", whose answers may lack {' and '.join(optional)}" if optional else ""
    return f"access tokens of {given.issuer_name or 'any issuer'} by {given.issuer.how}{lacking}"


def _among(names: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    return lambda named: any(name in names for name in named)


def _context(authorities: Path | None, setting: str) -> ssl.SSLContext:
    try:
        return client_context(authorities)
    except VaultError as error:
        faults = tuple(Detail(setting, detail.text) for detail in error.details)
        text = "The file with authorities for https:// cannot be used."
        raise VaultError(Code.BAD_SETTINGS, text, faults) from None
