"""Put the subcommands together, and turn errors into one clear line and an exit status."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import blockswarm_wire
from blockswarm_wire.errors import BlockSwarmError, CallerError

PLUG_INS = "blockswarm.commands"

FAILURE = 1
MISTAKE = 2
INTERRUPTED = 130


def build() -> typer.Typer:
    """The application with all commands that are installed."""
    from blockswarm.cli.chat import chat
    from blockswarm.cli.generate import generate
    from blockswarm.cli.restart import restart

    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help="Run large language models over a swarm of block servers.")(_root)
    app.command("generate")(generate)
    app.command("chat")(chat)
    app.command("restart")(restart)
    for plug_in in sorted(entry_points(group=PLUG_INS), key=lambda point: point.name):
        try:
            command = plug_in.load()
        except ImportError as error:
            # The other commands do not need it; its own caller learns why it is not there.
            command = _broken(plug_in.name, str(error))
        app.command(plug_in.name)(command)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run one command and exit with 0, 1 (it failed), 2 (the caller's mistake) or 130 (Ctrl-C)."""
    # A command line shows its own progress; the libraries' bars and advice would tear it apart.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        build()(args=arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output left, as `| head` does; that is no failure worth a trace.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILURE)
    except BlockSwarmError as error:
        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(MISTAKE if isinstance(error, CallerError) else FAILURE)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(blockswarm_wire.__version__)
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Options of `blockswarm` itself."""


def _broken(name: str, cause: str) -> object:
    def command() -> None:
        raise CallerError(f"`blockswarm {name}` cannot be used: {cause}")

    command.__doc__ = f"Not usable here: {cause}"
    return command
