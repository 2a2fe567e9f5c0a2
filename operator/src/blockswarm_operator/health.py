"""/healthz, /readyz and /metrics of the operator."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


async def serve(listen: str, registry: CollectorRegistry, *, healthy: Callable[[], bool]) -> web.AppRunner:
    """Serve until `cleanup()` of what is returned.

    Args:
        listen: host:port; an IPv6 address stands in brackets.
        healthy: False makes /healthz answer 503: the process must be restarted.

    Raises:
        OSError: the port is in use.
    """

    async def health(request: web.Request) -> web.Response:
        good = healthy()
        return web.Response(text="ok\n" if good else "a pass does not end\n", status=200 if good else 503)

    async def ready(request: web.Request) -> web.Response:
        # A replica without the lease is ready too: ready to take over.
        return web.Response(text="ok\n")

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    app = web.Application()
    app.add_routes([web.get("/healthz", health), web.get("/readyz", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = listen.rpartition(":")
    await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    return runner
