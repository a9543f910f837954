"""The administration listener: ``/healthz``, ``/readyz``, ``/metrics`` and the console.

Health is public. Metrics reveal traffic, and the sentences of ``/readyz`` and the console reveal
files and addresses. So these are for administrators and operators of the environment ``default``
with an access token. A scraper that sends the secret of the setting ``admin.metrics_token`` gets
metrics and sentences; callers on the same machine get sentences and the console.
"""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from aiohttp import web

from proxy.admin.console import MOST_DRAFT, Console, console_routes
from proxy.api.access import not_admin
from proxy.api.wire import error_answer
from proxy.errors import VaultError
from proxy.model.record import DEFAULT
from proxy.model.rights import Principal, Role
from proxy.telemetry.metrics import CONTENT_TYPE
from proxy.telemetry.reloads import Reload

#: A check of readiness: ``None``, or a sentence that says what is wrong.
ReadinessCheck = Callable[[], Awaitable[str | None]]

#: Header fields of a proxy in front: such a caller is not on this machine.
_FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


class Watchers(NamedTuple):
    """The callers that may see metrics, and the sentences of checks."""

    access: Callable[[web.Request], Awaitable[Principal]]  #: who calls; raises ``VaultError``
    secret: Callable[[], str | None]  #: bearer token of a scraper, as currently configured

    async def check(self, request: web.Request) -> None:
        """Raise ``VaultError`` unless the request comes from one of them.

        That is UNAUTHORIZED, FORBIDDEN, BAD_REQUEST or ISSUER_UNREACHABLE.
        """
        secret, sent = self.secret(), request.headers.getall("Authorization", ())
        if secret is not None and len(sent) == 1 and _same(sent[0], secret):
            return
        principal = await self.access(request)
        if not principal.has(Role.OPERATOR) or principal.environment != DEFAULT:
            raise not_admin(
                f"Metrics are for administrators and operators of the environment {DEFAULT}."
            )

    async def admits(self, request: web.Request) -> bool:
        """Whether the caller is on this machine, or ``check`` lets it pass."""
        if on_this_machine(request):
            return True
        try:
            await self.check(request)
        except VaultError:
            return False
        return True


def on_this_machine(request: web.Request) -> bool:
    """Whether a request comes over loopback, with no proxy in front, and for no other site.

    A browser asks for pages of other sites, too, and by names whose owners point them at this
    machine (DNS rebinding).
    """
    try:
        address = ipaddress.ip_address(request.remote or "")
    except ValueError:
        return False
    if not address.is_loopback or any(name in request.headers for name in _FORWARDED):
        return False
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return False
    origin = request.headers.get("Origin")
    return _is_loopback_name(request.url.host) and origin in (None, f"http://{request.host}")


def _is_loopback_name(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def admin_app(
    checks: Mapping[str, ReadinessCheck],
    states: Sequence[Reload],
    metrics: Callable[[], Awaitable[bytes]],
    watchers: Watchers,
    console: Console,
) -> web.Application:
    """``/healthz``: this process answers.

    ``/readyz``: 200 if every check passes, else 503; the body names each check, and what is stale;
    watchers read there why.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        faults = {name: await check() for name, check in checks.items()}
        ready = not any(faults.values())
        stale = {state.what: fault for state in states if (fault := await state.check())}
        results = {state.what: "ok" for state in states} | dict.fromkeys(checks, "ok")
        if await watchers.admits(request):
            results |= {what: f"stale: {fault}" for what, fault in stale.items()}
            results |= {name: fault for name, fault in faults.items() if fault}
        else:
            results |= dict.fromkeys(stale, "stale")
            results |= {name: "failed" for name, fault in faults.items() if fault}
        data = {"status": "ok" if ready else "unready", "checks": results, "stale": list(stale)}
        return web.json_response(data, status=200 if ready else 503)

    async def scrape(request: web.Request) -> web.Response:
        try:
            await watchers.check(request)
        except VaultError as error:
            answer = error_answer("", error)
            headers = {**answer.headers, "Content-Type": answer.media_type}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        return _metrics_answer(await metrics())

    async def admit(request: web.Request) -> None:
        if not on_this_machine(request):
            await watchers.check(request)

    app = web.Application(client_max_size=MOST_DRAFT)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", scrape)
    app.router.add_routes(console_routes(console, admit))
    app.on_response_prepare.append(_set_headers)
    return app


def metrics_app(metrics: Callable[[], Awaitable[bytes]]) -> web.Application:
    """``/metrics`` for everybody who reaches the listener, and nothing else."""

    async def scrape(_: web.Request) -> web.Response:
        return _metrics_answer(await metrics())

    app = web.Application(client_max_size=1024)
    app.router.add_get("/metrics", scrape)
    app.on_response_prepare.append(_set_headers)
    return app


def _metrics_answer(metrics: bytes) -> web.Response:
    return web.Response(body=metrics, headers={"Content-Type": CONTENT_TYPE})


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Hide the software and forbid caching."""
    response.headers["Server"] = "domicile"
    response.headers["Cache-Control"] = "no-store"


def _same(sent: str, secret: str) -> bool:
    """Whether a field shows the secret as its bearer token; takes as long for a wrong one."""
    scheme, _, token = sent.partition(" ")
    value = token.strip(" ").encode("utf-8", "surrogateescape")
    return scheme.lower() == "bearer" and hmac.compare_digest(value, secret.encode())
