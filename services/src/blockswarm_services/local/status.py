"""`blockswarm status`: the swarm as its directory sees it, from anywhere."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from blockswarm.cli import local_state
from blockswarm.cli.swarm import DirectoryOption, PeerOption, find_swarm
from blockswarm.config import ClientConfig
from blockswarm.discovery.choose import open_discovery
from blockswarm_wire.record import ModelEntry, ServerView, State

_STYLES = {State.ONLINE: "green", State.JOINING: "yellow", State.DRAINING: "yellow", State.OFFLINE: "red"}


class Output(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


def status(
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")] = Output.TABLE,
    directory: DirectoryOption = None,
    peer: PeerOption = None,
) -> None:
    """Show the models and servers of a swarm."""
    swarm = find_swarm(directory, peer)
    found = asyncio.run(_look(swarm.config()))
    local = local_state.read() if swarm.local else None
    pids = {process.id: process.pid for process in local.processes} if local else None
    answer = {"models": [describe(model, views, pids) for model, views in found]}
    if output is Output.JSON:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _print(answer)


def describe(
    model: ModelEntry, views: Sequence[ServerView], pids: Mapping[str, int | None] | None
) -> dict[str, Any]:
    """One model as `status -o json` shows it. Pure.

    Args:
        pids: process ids by server id, None where the swarm is not this machine's.
    """
    servers = [_server(view, pids) for view in views if view.record is not None]
    online = [view.record for view in views if view.record is not None and view.state is State.ONLINE]
    coverage = [sum(block in record.span for record in online) for block in range(model.num_blocks)]
    return {
        "model": model.name,
        "blocks": model.num_blocks,
        "coverage_min": min(coverage),
        "servers": sorted(servers, key=lambda server: (server["start"], server["end"], server["id"])),
    }


def _server(view: ServerView, pids: Mapping[str, int | None] | None) -> dict[str, Any]:
    record = view.record
    assert record is not None
    line: dict[str, Any] = {
        "id": view.server_id,
        "start": record.start,
        "end": record.end,
        "state": view.state.value,
        "address": record.address,
        "instance": record.instance,
        "kv_tokens_total": record.kv_capacity,
        "kv_tokens_used": record.kv_used,
        "sessions": record.sessions,
    }
    if pids is not None:
        line["pid"] = pids.get(view.server_id)
    return line


async def _look(config: ClientConfig) -> list[tuple[ModelEntry, list[ServerView]]]:
    discovery = open_discovery(config)
    try:
        models = sorted(await discovery.models(), key=lambda model: model.key)
        views = await asyncio.gather(*(discovery.lookup(model.key, model.num_blocks) for model in models))
        return list(zip(models, views, strict=True))
    finally:
        await discovery.close()


def _print(answer: dict[str, Any]) -> None:
    console = Console()
    if not answer["models"]:
        console.print("the swarm serves no model")
    for model in answer["models"]:
        console.print(
            f"{model['model']}   {model['blocks']} blocks, each on at least {model['coverage_min']} servers",
            highlight=False,
        )
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("SERVER", "BLOCKS", "STATE", "ADDRESS", "KV TOKENS", "SESSIONS"):
            table.add_column(name)
        for server in model["servers"]:
            style = _STYLES.get(State(server["state"]), "")
            table.add_row(
                server["id"],
                f"{server['start']}:{server['end']}",
                f"[{style}]{server['state']}[/]",
                server["address"],
                f"{server['kv_tokens_used']}/{server['kv_tokens_total']}",
                str(server["sessions"]),
            )
        console.print(table)
