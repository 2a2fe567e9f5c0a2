"""The command `blockswarm`. One file a subcommand; other parts add theirs (entry-point group `blockswarm.commands`)."""

from blockswarm.cli.app import main

__all__ = ["main"]
