"""`blockswarm generate`: one answer, streamed to stdout."""

import sys
from typing import Annotated, Any

import typer

from blockswarm.cli import options
from blockswarm.cli.swarm import DirectoryOption, PeerOption
from blockswarm_wire.errors import InvalidArgument


def generate(
    prompt: Annotated[str | None, typer.Argument(help="The text; '-' or none reads standard input.")] = None,
    model: options.ModelOption = None,
    directory: DirectoryOption = None,
    peer: PeerOption = None,
    max_new_tokens: options.NewTokensOption = 256,
    temperature: options.TemperatureOption = 0.0,
    top_p: options.TopPOption = 1.0,
    seed: options.SeedOption = None,
    system: options.SystemOption = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without chat template.")
    ] = False,
) -> None:
    """Answer a prompt, or continue a text."""
    text = _read_prompt(prompt)
    sampling = options.sampling(temperature, top_p)
    from blockswarm.cli.load import load

    remote, tokenizer = load(model, directory, peer)
    from blockswarm.cli.stream import TextStream, show_on_stdout

    if seed is not None:
        _fix_seed(seed)
    remote.generate(
        **encode(tokenizer, text, system=system, raw=raw),
        max_new_tokens=max_new_tokens,
        streamer=TextStream(tokenizer, show_on_stdout),
        **sampling,
    )
    print()


def encode(tokenizer: Any, text: str, *, system: str | None, raw: bool) -> dict[str, Any]:
    """Inputs of `generate` for a text: as a chat where the tokenizer has a template and `raw` is False."""
    if raw or not tokenizer.chat_template:
        encoded = tokenizer(text, return_tensors="pt")
    else:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        encoded = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    return {"inputs": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}


def _read_prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise InvalidArgument("no prompt: give one as argument, or pipe a text into this command")
    text = sys.stdin.read() if prompt in (None, "-") else prompt
    if not text:
        raise InvalidArgument("the prompt is empty")
    return text


def _fix_seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)
