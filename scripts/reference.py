"""Write docs/reference/ from the code: commands, processes, manifest fields, metrics.

    python scripts/reference.py [TARGET]

The files are checked in; a test compares them with those of a new run.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"

_NOTE = "<!-- Written by scripts/reference.py from the code. -->\n"


def pages() -> dict[str, str]:
    """File name → contents."""
    texts = {
        "commands.md": ("Command line", commands),
        "processes.md": ("Processes", processes),
        "manifest.md": ("Manifest", manifest),
        "metrics.md": ("Metrics", metrics),
    }
    return {name: f"# {title}\n\n{_NOTE}\n{write()}" for name, (title, write) in texts.items()}


def commands() -> str:
    """`blockswarm` and its subcommands."""
    import typer.main

    from blockswarm.cli.app import build

    group: Any = typer.main.get_command(build())
    parts = [
        "Exit status: 0 done, 1 it failed, 2 the caller's mistake, 130 interrupted.\n",
        "Commands that need a swarm take `--directory` or `--peer`, not both, else `$BLOCKSWARM_DIRECTORY`, else the "
        "swarm that `blockswarm up` runs on this machine. `up`, `status` and `down` come with the distribution "
        "`blockswarm-services`; `restart` needs `blockswarm[kubernetes]`.\n",
    ]
    for name, command in sorted(group.commands.items()):
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        usage = " ".join(_usage(parameter) for parameter in arguments)
        parts.append(f"## blockswarm {name} {usage}".rstrip() + f"\n\n{command.help}\n")
        options = list(_options(command))
        if options:
            parts.append(_table(("option", "meaning", "default"), options))
    return "\n".join(parts)


def _usage(argument: Any) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _options(command: Any) -> Iterator[tuple[str, str, str]]:
    for parameter in command.params:
        if parameter.name == "help":
            continue
        names = [f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts)]
        if parameter.param_type_name == "argument":
            names = [f"`{parameter.name.upper()}`"]
        told = parameter.default is not None and not isinstance(parameter.default, (bool, tuple))
        default = f"`{parameter.default}`" if told else ""
        yield ", ".join(names), _sentence(parameter.help), "required" if parameter.required else default


def processes() -> str:
    """The services' own command lines."""
    from blockswarm_services.directory.main import parse_arguments
    from blockswarm_services.server.settings import parse

    parts = []
    for name, show in (("blockswarm-server", parse), ("blockswarm-directory", parse_arguments)):
        parts.append(f"## {name}\n\n```\n{_help_of(show)}```\n")
    return "\n".join(parts)


def _help_of(show: Callable[[list[str]], object]) -> str:
    os.environ["COLUMNS"] = "110"
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        show(["--help"])
    return output.getvalue()


def manifest() -> str:
    """Fields of a BlockServer document."""
    from blockswarm_wire.resource import API_VERSION, KIND, BlockServer

    schema = BlockServer.model_json_schema(by_alias=True)
    start = (
        f"One or more YAML documents with `apiVersion: {API_VERSION}` and `kind: {KIND}`. Unknown fields and two "
        "documents of one name are refused, and in local mode spans that leave a block uncovered.\n\n"
        "Local mode refuses what a model needs a cluster for (`source.volume`, `hub.tokenSecret`). It does not read "
        "`spec.cache.volume`, `spec.compute.gpu`, `spec.update`, `spec.restart` and `spec.pod`. A cluster refuses "
        "`source.path`, and asks for `compute.gpu` on device cuda.\n\n"
        "`[]` stands for each entry of a list.\n"
    )
    return start + "\n" + _table(("field", "type", "default", "meaning"), _fields(schema, schema, ""))


def _fields(
    schema: Mapping[str, Any], part: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, str, str, str]]:
    required = set(part.get("required", ()))
    for name, field in part["properties"].items():
        path = f"{prefix}{name}"
        options = [option for option in field.get("anyOf", [field]) if option.get("type") != "null"]
        inner = _resolve(schema, options[0])
        if "items" in inner:
            entry = _resolve(schema, inner["items"])
            if "properties" in entry:
                yield f"`{path}`", _type(inner), "", _sentence(field.get("description"))
                yield from _fields(schema, entry, path + "[].")
                continue
        if "properties" in inner:
            yield from _fields(schema, inner, path + ".")
            continue
        default = field.get("default")
        shown = (
            "required"
            if name in required
            else ""
            if default in (None, [], {})
            else f"`{json.dumps(default)}`"
        )
        yield f"`{path}`", _type(inner), shown, _sentence(field.get("description"))


def _resolve(schema: Mapping[str, Any], field: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = field.get("$ref")
    return field if reference is None else schema["$defs"][reference.rpartition("/")[2]]


def _type(field: Mapping[str, Any]) -> str:
    choices = [field["const"]] if "const" in field else field.get("enum")
    if choices:
        return " or ".join(f"`{choice}`" for choice in choices)
    low, high = field.get("minimum"), field.get("maximum")
    if "exclusiveMinimum" in field:
        low = field["exclusiveMinimum"] + 1
    if "exclusiveMaximum" in field:
        high = field["exclusiveMaximum"] - 1
    bounds = f", {low} to {high}" if low is not None and high is not None else ""
    kind = field.get("type", "")
    if kind == "array":
        return f"list, at most {field['maxItems']}"
    if kind == "object":
        return (
            f"map, at most {field['maxProperties']}" if "maxProperties" in field else "object of Kubernetes"
        )
    return f"{kind}{bounds}"


def metrics() -> str:
    """What the processes export."""
    from blockswarm_operator.metrics import Metrics as OperatorMetrics
    from blockswarm_services.directory.metrics import DirectoryMetrics
    from blockswarm_services.server.legs import Legs
    from blockswarm_services.server.metrics import Metrics
    from blockswarm_wire.record import State

    node: Any = SimpleNamespace(connected=0, missing_peers=0, stored_keys=0)
    mirror: Any = SimpleNamespace(watchers=0, store=SimpleNamespace(size=lambda: 0, coverage=lambda now: {}))
    server = Metrics(lambda: State.JOINING)
    server.watch(Legs(1, 1, 1), 1, lambda: 0)
    parts = ["Each process serves `/metrics`, `/healthz` and `/readyz` on its metrics address.\n"]
    for title, registry in (
        ("Block server", server.registry),
        ("Directory", DirectoryMetrics(mirror, node).registry),
        ("Operator", OperatorMetrics().registry),
    ):
        parts.append(f"## {title}\n\n" + _table(("series", "type", "labels", "meaning"), _series(registry)))
    return "\n".join(parts)


def _series(registry: Any) -> Iterator[tuple[str, str, str, str]]:
    # A series with labels has no sample before somebody asks for one: its collector knows their names.
    known = {
        name: set(getattr(collector, "_labelnames", ()))
        for collector, names in registry._collector_to_names.items()
        for name in names
    }
    for family in sorted(registry.collect(), key=lambda family: family.name):
        if family.name.startswith("blockswarm_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            # Of a collector of several series, only the series itself knows them.
            labels |= known.get(name, set()) | set(getattr(family, "_labelnames", ()))
            yield f"`{name}`", family.type, ", ".join(sorted(labels)), family.documentation


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def write(target: Path) -> None:
    """Write all pages into `target`."""
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (target / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
