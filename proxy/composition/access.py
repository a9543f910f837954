"""Who may call the vault's own interface: the token service of the settings, and its upkeep."""

import asyncio
from collections.abc import Mapping
from typing import Final

from proxy.auth.opening import AuthOptions, open_service
from proxy.auth.service import TokenService
from proxy.clock import Clock
from proxy.config import Settings
from proxy.crypto.keyset import Keyset
from proxy.errors import VaultError
from proxy.storage.base import Store
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics

_log = logs.logger("access")

_TOKENS: Final = "domicile_token_requests_total"


async def open_access(
    settings: Settings, store: Store, keysets: Mapping[str, Keyset], clock: Clock, metrics: Metrics
) -> TokenService:
    """The token service of an opened store and the environments of these keysets; says what to do where nobody could call it. ``close`` it after use."""
    options = AuthOptions(settings.auth.token_lifetime, settings.auth.audiences, apart(settings))

    def observe(outcome: str) -> None:
        metrics.cell(_TOKENS, outcome).value += 1

    service = await open_service(store, keysets, clock, observe, options)
    service.audiences.listening(str(settings.listen.vault))  # told again once the port is known
    if not len(service.clients):
        # Not a warning: who has an application behind the proxy, and nothing else, needs none.
        _log.info(
            "no client can use the vault's own interface yet: stop, run `domicile init` or `domicile client create`, "
            "and start again"
        )
    return service


def apart(settings: Settings) -> bool:
    """Whether tokens of the external issuer name the environment that they are for."""
    return settings.auth.environment_claim is not None


async def keep_keys(service: TokenService, interval: float) -> None:
    """Rotate signing keys by their age, and write down where clients have authenticated from, for ever.

    What fails is told and tried again; the key before goes on signing. At the end the networks are written once more.
    """
    try:
        while True:
            await asyncio.sleep(interval)
            await _rotate(service)
            await _write_networks(service)
    finally:
        await _write_networks(service)


async def _rotate(service: TokenService) -> None:
    before = service.keys.current.kid
    try:
        await service.keys.upkeep()
    except VaultError as error:
        _log.error(
            "the key that signs access tokens is due, and could not be replaced",
            code=error.code,
            text=error.message,
        )
        return
    if service.keys.current.kid != before:
        _log.info("another key signs access tokens from now on")


async def _write_networks(service: TokenService) -> None:
    try:
        await service.networks.save()
    except VaultError as error:
        _log.warning("the known networks of clients could not be written", code=error.code, text=error.message)
