"""Options that several commands share."""

from typing import Annotated

import typer

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="Folder or Hub repository with tokenizer and embeddings. Default: the local swarm's only model.",
    ),
]
NewTokensOption = Annotated[
    int, typer.Option("--max-new-tokens", "-n", min=1, help="Most tokens of one answer.")
]
TemperatureOption = Annotated[
    float, typer.Option("--temperature", "-t", min=0.0, help="0 takes the likeliest token, always.")
]
TopPOption = Annotated[
    float,
    typer.Option(
        "--top-p", min=0.0, max=1.0, help="Sample from the likeliest tokens of this total probability."
    ),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Makes sampling repeatable.")]
SystemOption = Annotated[
    str | None, typer.Option("--system", "-s", help="System message of the chat template.")
]


def sampling(temperature: float, top_p: float) -> dict[str, object]:
    """Arguments of `generate` for a temperature; 0 = greedy."""
    if temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": temperature, "top_p": top_p}
