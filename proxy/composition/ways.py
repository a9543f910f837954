"""How applications are reached and what they are told, as the settings say."""

from collections.abc import Mapping
from dataclasses import replace

from proxy.composition.guard import Guard
from proxy.config import Settings, Upstream
from proxy.crypto.keyset import Keyset
from proxy.errors import VaultError
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.web.applications import Applications
from proxy.web.forwarded import Telling, Told
from proxy.web.gateway import GatewayOptions
from proxy.web.guard.firewall import Mode
from proxy.web.peers import Trusted
from proxy.web.secure.entrance import Entrance
from proxy.web.upstream.client import Way
from proxy.web.upstream.limits import Limits
from proxy.web.upstream.tls import ClientTls, client_context

_log = logs.logger("bootstrap")


def ways(settings: Settings) -> tuple[Way, dict[str, Way]]:
    """How applications are reached, and which ones otherwise. Raises ``VaultError`` (BAD_SETTINGS)."""
    special = {name: _way(own, f"applications.{name}") for name, own in settings.applications.items()}
    return _way(settings.upstream, "upstream"), special


def _way(upstream: Upstream, section: str) -> Way:
    """How an application is reached. Raises ``VaultError`` (BAD_SETTINGS) if a file for it cannot be used."""
    tls, breaker = upstream.tls, upstream.breaker
    limits = Limits(
        connect=upstream.connect / 1000,
        head=upstream.head / 1000,
        idle=upstream.idle / 1000,
        total=upstream.total / 1000,
        connections=upstream.connections,
        queue=upstream.queue,
        keep=upstream.keep / 1000,
        failures=breaker.failures,
        pause=breaker.pause / 1000,
    )
    if tls.verify and not (tls.ca or tls.certificate or tls.server_name):
        return Way(limits)
    if not tls.verify:
        _log.warning("tls.verify is false: nobody knows who answers in the application's name", source=section)
    context = client_context(tls.ca, tls.certificate, tls.key, verify=tls.verify, section=f"{section}.tls")
    return Way(limits, ClientTls(context, tls.server_name))


def renew(settings: Settings, applications: Applications) -> None:
    """Read the files for TLS towards applications again; where one cannot be used, all those before stay in force."""
    try:
        way, special = ways(settings)
    except VaultError as error:
        applications.state.failed(error)
        for source, text in error.details:
            _log.error("a file for TLS cannot be used, and those read before stay in force", source=source, text=text)
        return
    applications.upstream.renew(way, special)
    applications.state.succeeded()
    _log.info("the files for TLS towards applications were read again")


def gateway_options(
    settings: Settings, applications: Applications, guard: Guard, entrance: Entrance | None, keyset: Keyset
) -> GatewayOptions:
    """What is switched off is not made, so that no request pays for it."""
    forwarding, trusted = settings.forwarding, settings.trusted_proxies
    told = Told(forwarding.x_forwarded, forwarding.forwarded, forwarding.via, forwarding.host == "upstream")
    return GatewayOptions(
        applications.upstream,
        keyset.hasher("entity tags"),
        held=settings.limits.held,
        met=applications.met,
        special=settings.applications.keys(),
        telling=Telling(told, Trusted(trusted)) if any(told) else None,
        entrance=entrance,
        firewall=guard.firewall if guard.firewall.mode is not Mode.OFF else None,
        screened=guard.screened("proxy"),
        quotas=guard.quotas if guard.quotas.address is not None else None,
        limited=guard.limited("proxy"),
    )


def redirected(rules: RuleSet, upstreams: Mapping[str, str]) -> RuleSet:
    """The rule set with other application addresses; for the demo, which looks for free ports itself."""
    endpoints = {
        id(endpoint): replace(endpoint, upstream=upstreams.get(endpoint.name, endpoint.upstream))
        for endpoint in rules.endpoints
    }
    return replace(
        rules,
        endpoints=tuple(endpoints.values()),
        operations=tuple(replace(item, endpoint=endpoints[id(item.endpoint)]) for item in rules.operations),
        passed=tuple(replace(item, endpoint=endpoints[id(item.endpoint)]) for item in rules.passed),
    )
