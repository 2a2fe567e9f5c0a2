"""`blockswarm chat`: a conversation in one open session, so that only new tokens travel."""

from typing import Annotated, Any

import typer
from rich.console import Console

from blockswarm.cli import options
from blockswarm.cli.swarm import DirectoryOption, PeerOption
from blockswarm_wire.errors import InvalidArgument, MaxLengthExceeded

_HELP = "/new starts over, /exit or Ctrl-D leaves, Ctrl-C stops an answer"


def chat(
    model: options.ModelOption = None,
    directory: DirectoryOption = None,
    peer: PeerOption = None,
    max_new_tokens: options.NewTokensOption = 512,
    temperature: options.TemperatureOption = 0.0,
    top_p: options.TopPOption = 1.0,
    seed: options.SeedOption = None,
    system: options.SystemOption = None,
    max_length: Annotated[int, typer.Option(min=16, help="Tokens that the conversation may have.")] = 4096,
) -> None:
    """Talk to a model."""
    from blockswarm.cli.load import load

    remote, tokenizer = load(model, directory, peer)
    if not tokenizer.chat_template:
        raise InvalidArgument("this model's tokenizer has no chat template: use `blockswarm generate`")
    if seed is not None:
        import torch

        torch.manual_seed(seed)
    arguments = {"max_new_tokens": max_new_tokens, **options.sampling(temperature, top_p)}
    console = Console(stderr=True)
    console.print(_HELP, style="dim")
    again = True
    while again:
        with remote.inference_session(max_length=max_length) as session:
            again = Conversation(remote, tokenizer, session, system, arguments).run(console)


class Conversation:
    """Turns of one session.

    The whole conversation goes through the chat template each time, but only the ids behind those that the session
    holds already are sent.
    """

    def __init__(
        self, model: Any, tokenizer: Any, session: Any, system: str | None, arguments: dict[str, Any]
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._session = session
        self._arguments = arguments
        self._messages = [{"role": "system", "content": system}] if system else []

    def run(self, console: Console) -> bool:
        """Talk until the user leaves; True if a new conversation is wanted."""
        while True:
            try:
                text = input("> ").strip()
            except EOFError:
                return False
            if text in ("/exit", "/quit"):
                return False
            if text == "/new":
                return True
            if text:
                self._say(text, console)

    def _say(self, text: str, console: Console) -> None:
        try:
            self.turn(text)
        except KeyboardInterrupt:
            console.print("\n(stopped)", style="dim")
        except MaxLengthExceeded as error:
            console.print(f"{error}: start over with /new, or give a larger --max-length", style="red")
        else:
            print()

    def turn(self, text: str) -> str:
        """The answer to one message, shown while it comes."""
        from blockswarm.cli.stream import TextStream, show_on_stdout

        messages = [*self._messages, {"role": "user", "content": text}]
        ids = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
        stream = TextStream(self._tokenizer, show_on_stdout)
        try:
            self._model.generate(
                ids[:, self._keep(ids) :], session=self._session, streamer=stream, **self._arguments
            )
        finally:
            # Also what an interrupted answer has said so far was said.
            answer = str(self._tokenizer.decode(stream.ids, skip_special_tokens=True))
            if answer:
                self._messages = [*messages, {"role": "assistant", "content": answer}]
        return answer

    def _keep(self, ids: Any) -> int:
        """Roll the session back to where it and the conversation's `ids` [1, tokens] agree; how many that are."""
        held = self._session.output_ids
        if held is None:
            return 0
        past, wanted = held[0].tolist(), ids[0].tolist()
        same = next((i for i, (a, b) in enumerate(zip(past, wanted, strict=False)) if a != b), len(past))
        same = min(same, len(wanted) - 1)
        if same == len(past):
            return same
        # The newest id may not have been fed yet, so the position can be one below the ids that are held.
        same = min(same, self._session.position - 1) if same >= self._session.position else same
        self._session.position = same
        return same
