"""Services of the vault's own interface, assembled from what bootstrap has opened."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from proxy.api.access import BearerAccess
from proxy.api.audit import Auditing
from proxy.api.context import Administered, EnvironmentServices, Services
from proxy.api.idempotency import repeating
from proxy.auth.approvals import Approvals
from proxy.auth.authorization_server import AuthOptions, AuthorizationServer, open_service
from proxy.auth.external_issuer import ByIntrospection, ByKeys, Expected, External
from proxy.auth.policies import Policies, open_policies
from proxy.auth.sealed_notes import SealedNote
from proxy.bootstrap.edge import EdgeGuard
from proxy.bootstrap.functions import runner
from proxy.clock import Clock
from proxy.config import Settings
from proxy.config.document import variable
from proxy.config.settings import SecretSource
from proxy.crypto.keyset import Keyset
from proxy.crypto.secret import hide_variables, secret_variable
from proxy.errors import Code, Detail, VaultError, bad_setting
from proxy.model.record import DEFAULTS, RecordLimits
from proxy.net.client_address import Trusted
from proxy.net.outbound import AclClient, EgressPolicy, IssuerClient, Outbound
from proxy.net.tls import client_context
from proxy.storage.base import Store
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.vault.attachments import Contents
from proxy.vault.collection import HistoryPolicy
from proxy.vault.idempotency import Replies, system_collection
from proxy.vault.maintenance import open_job
from proxy.vault.schemas import Catalog
from proxy.vault.vault import Vault

_log = logs.logger("vault")


async def environment_services(
    vault: Vault, catalog: Catalog, contents: Contents | None
) -> EnvironmentServices:
    """Assemble the services of the interface for the environment of a vault.

    Raises ``VaultError`` when the store cannot be written.
    """
    system, policies = await system_collection(vault), await policies_of(vault)
    job = await open_job(vault, catalog, _report)
    catalog.closes(job.close)
    once = repeating(Replies(), system)
    return EnvironmentServices(
        catalog=catalog, once=once, policies=policies, contents=contents, rehash=job
    )


def _report(error: VaultError) -> None:
    _log.error("a rehash of all records failed and will be retried", fault=error)


class SharedServices(NamedTuple):
    """Services that the interface shares with the rest of an instance."""

    auth: AuthorizationServer
    metrics: Metrics
    guard: EdgeGuard
    audit: Auditing


async def policies_of(vault: Vault) -> Policies:
    """The access policies of the environment of a vault.

    Raises ``VaultError`` when the store cannot be read.
    """
    context = (await system_collection(vault)).context
    return await open_policies(context.store, context.keyset)


def interface(settings: Settings, environments: Administered, shared: SharedServices) -> Services:
    """Assemble the services of an instance; the caller closes ``functions``.

    Raises ``VaultError`` when an installed function cannot be called.
    """
    auth, metrics, guard, audit = shared

    durations = metrics.buckets("domicile_api_seconds")
    counter = cache(lambda *of: metrics.cell("domicile_api_requests_total", of[0], str(of[1])))

    def observe(operation: str, status: int, seconds: float) -> None:
        counter(operation, status).value += 1
        durations.observe(seconds)

    return Services(
        spaces=environments.spaces,
        environments=environments,
        access=BearerAccess(auth.tokens),
        auth=auth,
        audit=audit,
        request_ids=settings.forwarding.request_id,
        trusted=Trusted(settings.trusted_proxies),
        functions=runner(settings),
        observe=observe,
        body_limit=settings.limits.body,
        country=settings.country,
        limits=limits(settings),
        on_existing=settings.models.on_existing,
        emergency_lifetime=settings.auth.emergency_lifetime,
        firewall=guard.firewall,
        screened=guard.screened("vault"),
        quotas=guard.quotas,
        limited=guard.limited("vault"),
    )


def limits(settings: Settings) -> RecordLimits:
    """The limits of single requests; a page is never larger than the largest request."""
    most = settings.limits.find
    bounds = settings.limits
    default = min(most, DEFAULTS.find_default)
    return RecordLimits(
        find_maximum=most, find_default=default, batch=bounds.batch, page_bytes=bounds.page
    )


def history_policy(settings: Settings) -> HistoryPolicy:
    """Return the retention of past versions."""
    return HistoryPolicy(settings.history.keep, settings.history.keep_deleted)


# Who may call the vault's own interface: the token service of the settings, and its maintenance.

_access_log = logs.logger("access")

_TOKENS: Final = "domicile_token_requests_total"


async def open_access(
    settings: Settings, store: Store, keysets: Mapping[str, Keyset], clock: Clock, metrics: Metrics
) -> AuthorizationServer:
    """The token service of an opened store and the environments of these keysets.

    Logs what to do if nobody could call it. ``close`` it after use.
    """
    options = AuthOptions(settings.auth.token_lifetime, settings.auth.audiences, apart(settings))
    service = await open_service(store, keysets, clock, partial(metrics.count, _TOKENS), options)
    service.audiences.listening(str(settings.listen.vault))  # told again once the port is known
    if not len(service.clients) and settings.auth.first_client is None:
        # Not a warning: who has an application behind the proxy, and nothing else, needs none.
        _access_log.info(
            "no client can use the vault's own interface yet: stop, run `domicile init` or "
            "`domicile client create`, and start again"
        )
    return service


async def open_approvals(
    settings: Settings, store: Store, keyset: Keyset, clock: Clock
) -> Approvals:
    """The requests that a second person decides about, with the keyset of ``default``."""
    note = SealedNote(store, keyset.aead(), keyset.environment, "approvals")
    kinds, lifetime = settings.auth.four_eyes, settings.auth.approval_lifetime
    approvals = Approvals(note, clock, kinds, lifetime)
    await approvals.load()
    return approvals


def apart(settings: Settings) -> bool:
    """Whether tokens of the external issuer name the environment that they are for."""
    return settings.auth.environment_claim is not None


async def keep_keys(service: AuthorizationServer, interval: float) -> None:
    """Rotate signing keys by their age, and write down where clients have authenticated from, for
    ever.

    Failures are logged and retried; the earlier key keeps signing. At the end the networks are
    written once more.
    """
    try:
        while True:
            await asyncio.sleep(interval)
            await _rotate(service)
            await _write_networks(service)
    finally:
        await _write_networks(service)


async def _rotate(service: AuthorizationServer) -> None:
    before = service.keys.current.kid
    try:
        await service.keys.maintain()
    except VaultError as error:
        _access_log.error(
            "the signing key of access tokens is due but could not be rotated", fault=error
        )
        return
    if service.keys.current.kid != before:
        _access_log.info("the signing key of access tokens was rotated")


async def _write_networks(service: AuthorizationServer) -> None:
    try:
        await service.networks.save()
    except VaultError as error:
        _access_log.warning("the known networks of clients could not be written", fault=error)


# Secrets that the settings name by their place.

#: Characters of a secret.
_LONGEST: Final = 4096

_SCRAPER: Final = "admin.metrics_token"
_SHORTEST: Final = 16


_unusable = partial(bad_setting, "A secret that the settings name cannot be used.")


def hide_secrets(settings: Settings) -> None:
    """Take the secrets that the settings name out of the environment; they stay readable here."""
    auth, admin = settings.auth.introspection_credentials, settings.admin.metrics_token
    named = [one.locator for one in (settings.keys, auth, admin) if one and one.source == "env"]
    # the last two are addresses that may hold a password
    hide_variables([*named, variable("store"), variable("limits.store")])


def read_secret(source: SecretSource, setting: str) -> str:
    """The secret, without white space around it.

    ``VaultError`` (BAD_SETTINGS) when it cannot be read, or there is none.
    """
    if source.source == "env":
        text, what = secret_variable(source.locator), f"the environment variable {source.locator}"
    else:
        what = source.locator
        try:
            text = Path(source.locator).read_bytes()[: _LONGEST + 1].decode()
        except OSError as error:
            raise _unusable(setting, f"{what} cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise _unusable(setting, f"{what} holds no text") from None
    secret = text.strip()
    if not secret or len(secret) > _LONGEST or not secret.isprintable():
        raise _unusable(
            setting, f"{what} holds no secret: one line of printable characters is needed"
        )
    return secret


def scraper_secret(settings: Settings) -> Callable[[], str | None]:
    """Return a function that reads the scrapers' secret, whose file may change.

    Raises ``VaultError`` (BAD_SETTINGS) as ``read_secret``, and for a secret that could be guessed.
    """
    source = settings.admin.metrics_token
    if source is None:
        return lambda: None
    if len(read_secret(source, _SCRAPER)) < _SHORTEST:
        raise _unusable(
            _SCRAPER, f"the secret is shorter than {_SHORTEST} characters, and could be guessed"
        )

    def secret() -> str | None:
        try:
            text = read_secret(source, _SCRAPER)
        except VaultError:  # the file is gone or being replaced: the secret is unknown meanwhile
            return None
        return text if len(text) >= _SHORTEST else None

    return secret


# Outbound clients for access decisions: filter endpoints of access policies, and an external issuer
# of tokens.

#: Seconds within which the issuer has to answer.
_ISSUER: Final = 5.0


@asynccontextmanager
async def outbound_clients(
    services: Services, settings: Settings, metrics: Metrics, clock: Clock
) -> AsyncIterator[None]:
    """Let the services ask whom the settings name.

    Raises ``VaultError`` (BAD_SETTINGS) for files that cannot be used.
    """
    observe = partial(metrics.count, "domicile_acl_requests_total")
    async with AsyncExitStack() as stack:
        seconds, context = (
            settings.acl.timeout / 1000,
            _context(settings.acl.authorities, "acl.authorities"),
        )
        services.acl = AclClient(
            await stack.enter_async_context(Outbound(seconds, context)), observe
        )
        services.egress = EgressPolicy(settings.acl.allow)
        bounded = Outbound(seconds, context, services.egress)
        services.acl_elsewhere = AclClient(await stack.enter_async_context(bounded), observe)
        if settings.auth.issuer is not None:
            outbound = await stack.enter_async_context(issuer_outbound(settings))
            services.access = BearerAccess(
                services.auth.tokens, external(services, settings, outbound, clock)
            )
        yield


def issuer_outbound(settings: Settings) -> Outbound:
    """Return the client that calls token issuers; raises as ``outbound_clients``."""
    return Outbound(_ISSUER, _context(settings.auth.issuer_authorities, "auth.issuer_authorities"))


def external(services: Services, settings: Settings, outbound: Outbound, clock: Clock) -> External:
    """Return the verifier of tokens of the external issuer; raises as ``read_secret``."""
    auth = settings.auth
    if auth.issuer is None:
        raise ValueError("the settings name no external issuer")
    secret = None
    if auth.introspection_credentials is not None:
        secret = read_secret(auth.introspection_credentials, "auth.introspection_credentials")
    client = IssuerClient(outbound, auth.issuer.url, secret)
    issuer = (
        ByKeys(client.keys, clock)
        if auth.issuer.how == "jwks"
        else ByIntrospection(client.introspect, clock)
    )
    audience = (
        _among(auth.issuer_audiences) if auth.issuer_audiences else services.auth.audiences.meets
    )
    optional = auth.introspection_optional_claims
    expected = Expected(
        auth.issuer_name, audience, auth.environment_claim, auth.client_claim, optional
    )
    return External(issuer, services.auth.clients, expected, clock)


def check_asking(settings: Settings) -> str:
    """Describe how tokens of an external issuer are verified.

    Raises as a start would for the files of outbound clients.
    """
    _context(settings.acl.authorities, "acl.authorities")
    if settings.auth.issuer is not None:
        _context(settings.auth.issuer_authorities, "auth.issuer_authorities")
    if settings.auth.introspection_credentials is not None:
        read_secret(settings.auth.introspection_credentials, "auth.introspection_credentials")
    scraper_secret(settings)
    auth = settings.auth
    if auth.issuer is None:
        return ""
    optional = sorted(auth.introspection_optional_claims)
    lacking = f", whose answers may lack {' and '.join(optional)}" if optional else ""
    return f"access tokens of {auth.issuer_name or 'any issuer'} by {auth.issuer.how}{lacking}"


def _among(names: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    return lambda named: any(name in names for name in named)


def _context(authorities: Path | None, setting: str) -> ssl.SSLContext | None:
    try:
        return client_context(authorities) if authorities else None
    except VaultError as error:
        faults = tuple(Detail(setting, detail.text) for detail in error.details)
        text = "The file with authorities for https:// cannot be used."
        raise VaultError(Code.BAD_SETTINGS, text, faults) from None
