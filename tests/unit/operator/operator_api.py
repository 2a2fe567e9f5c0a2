"""An API server on loopback that answers as a test says, and notes what it is asked."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def write_kubeconfig(path: Path, port: int, token: str = "first") -> None:
    """Who the operator is to an API server at this port."""
    path.write_text(_KUBECONFIG % (port, token))


class Asked(NamedTuple):
    """A request."""

    verb: str
    path: str
    query: dict[str, str]
    content: str
    accept: str
    token: str
    body: Any


def says(status: int, data: Any = None, *, text: str | None = None) -> Answer:
    """This status with JSON, or with any other text."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if text is not None:
            return web.Response(status=status, text=text)
        return web.json_response({"metadata": {}} if data is None else data, status=status)

    return answer


async def silent(request: web.Request) -> web.StreamResponse:
    """No answer, ever."""
    await asyncio.Event().wait()
    raise AssertionError


async def silent_after_the_head(request: web.Request) -> web.StreamResponse:
    """A status of success and the beginning of a body, and no more."""
    await _begin(request)
    return await silent(request)


async def hangs_up(request: web.Request) -> web.StreamResponse:
    """The connection ends before an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def hangs_up_in_the_body(request: web.Request) -> web.StreamResponse:
    """The connection ends in the middle of an answer."""
    await _begin(request)
    return await hangs_up(request)


async def _begin(request: web.Request) -> None:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"metadata": ')


class StubApi:
    """Gives `answer` to every request. `asked`: the requests so far."""

    def __init__(self) -> None:
        self.answer: Answer = says(200)
        self.asked: list[Asked] = []
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        # With cancellation nobody waits for an answer that never comes.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)

    async def __aenter__(self) -> "StubApi":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._runner.addresses[0][1])

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        data, headers = await request.read(), request.headers
        self.asked.append(
            Asked(
                request.method,
                request.path,
                dict(request.query),
                headers["Content-Type"],
                headers["Accept"],
                headers.get("Authorization", ""),
                json.loads(data) if data else None,
            )
        )
        return await self.answer(request)
