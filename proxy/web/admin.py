"""The administration listener: ``/healthz``, ``/readyz`` and ``/metrics``, nothing else."""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from proxy.telemetry.metrics import CONTENT_TYPE

#: A check of readiness: ``None``, or a sentence that says what is wrong.
Check = Callable[[], Awaitable[str | None]]


def admin_app(checks: Mapping[str, Check], metrics: Callable[[], bytes]) -> web.Application:
    """``/healthz``: this process answers. ``/readyz``: 200 if every check passes, else 503; the body names each check."""

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(_: web.Request) -> web.Response:
        faults = {name: await check() for name, check in checks.items()}
        ready = not any(faults.values())
        told = {name: fault or "ok" for name, fault in faults.items()}
        return web.json_response({"status": "ok" if ready else "unready", "checks": told}, status=200 if ready else 503)

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application(client_max_size=1024)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", scrape)
    app.on_response_prepare.append(_plain)
    return app


async def _plain(_: web.Request, response: web.StreamResponse) -> None:
    """Nobody needs to know which software answers; and no answer is worth keeping."""
    response.headers["Server"] = "domicile"
    response.headers["Cache-Control"] = "no-store"
