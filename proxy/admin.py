"""The administration listener: ``/healthz``, ``/readyz`` and ``/metrics``, nothing else.

Whoever reaches it may ask whether the process is well. Metrics tell of the traffic, so they are for
administrators of the environment ``default``, with an access token, and for a scraper that shows
the secret of the setting ``admin.metrics_token``.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from aiohttp import web

from proxy.api.access import not_admin
from proxy.api.wire import error_answer
from proxy.errors import VaultError
from proxy.model.record import DEFAULT, Principal
from proxy.telemetry.metrics import CONTENT_TYPE
from proxy.telemetry.reloads import Reload

#: A check of readiness: ``None``, or a sentence that says what is wrong.
ReadinessCheck = Callable[[], Awaitable[str | None]]


class Watchers(NamedTuple):
    """The callers that may see the metrics."""

    access: Callable[[web.Request], Awaitable[Principal]]  #: who calls; raises ``VaultError``
    secret: Callable[[], str | None]  #: what a scraper shows as its bearer token, at the moment

    async def check(self, request: web.Request) -> None:
        """Raise ``VaultError`` unless the request comes from one of them.

        That is UNAUTHORIZED, FORBIDDEN, BAD_REQUEST or ISSUER_UNREACHABLE.
        """
        secret, sent = self.secret(), request.headers.getall("Authorization", ())
        if secret is not None and len(sent) == 1 and _same(sent[0], secret):
            return
        principal = await self.access(request)
        if not principal.admin or principal.environment != DEFAULT:
            raise not_admin(f"Metrics are for administrators of the environment {DEFAULT}.")


def admin_app(
    checks: Mapping[str, ReadinessCheck],
    states: Sequence[Reload],
    metrics: Callable[[], bytes],
    watchers: Watchers,
) -> web.Application:
    """``/healthz``: this process answers.

    ``/readyz``: 200 if every check passes, else 503; the body names each check, and what is stale.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(_: web.Request) -> web.Response:
        faults = {name: await check() for name, check in checks.items()}
        ready = not any(faults.values())
        stale = {state.what: fault for state in states if (fault := await state.check())}
        results = {
            state.what: f"stale: {stale[state.what]}" if state.what in stale else "ok"
            for state in states
        }
        results |= {name: fault or "ok" for name, fault in faults.items()}
        data = {"status": "ok" if ready else "unready", "checks": results, "stale": list(stale)}
        return web.json_response(data, status=200 if ready else 503)

    async def scrape(request: web.Request) -> web.Response:
        try:
            await watchers.check(request)
        except VaultError as error:
            answer = error_answer("", error)
            headers = {**answer.headers, "Content-Type": answer.media_type}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application(client_max_size=1024)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", scrape)
    app.on_response_prepare.append(_set_headers)
    return app


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Hide the software and forbid caching."""
    response.headers["Server"] = "domicile"
    response.headers["Cache-Control"] = "no-store"


def _same(sent: str, secret: str) -> bool:
    """Whether a field shows the secret as its bearer token; takes as long for a wrong one."""
    scheme, _, token = sent.partition(" ")
    value = token.strip(" ").encode("utf-8", "surrogateescape")
    return scheme.lower() == "bearer" and hmac.compare_digest(value, secret.encode())
