"""One call of `generate` within a session: what goes before it, what is fed, what is left for the next call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch

from blockswarm.models.cache import RemoteCache
from blockswarm.models.protocol import Session
from blockswarm.models.settings import Settings
from blockswarm_wire.errors import InvalidArgument

# Position at which the last turn left a session: below it, the user has rolled back and later ids are void.
_LEFT: WeakKeyDictionary[Session, int] = WeakKeyDictionary()


@dataclass
class Turn:
    """
    session: its rows hold the past.
    prefix: positions of trained prompts at its start.
    ids: [rows, past + new], what transformers is to see; None = nothing at all (it starts from BOS).
    mask: attention mask of the same shape, None = transformers finds it out.
    past: columns of `ids` that belong to earlier turns, fed or not.
    embedded: positions of this turn that are given as embeddings, without ids.
    """

    session: Session
    prefix: int
    ids: torch.Tensor | None
    mask: torch.Tensor | None
    past: int
    embedded: int = 0

    @classmethod
    def begin(
        cls,
        session: Session,
        inputs: torch.Tensor | None,
        mask: torch.Tensor | None,
        *,
        prefix: int,
        setting: Settings,
    ) -> Self:
        """Put the ids of earlier turns before `inputs`.

        Raises:
            InvalidArgument: another number of rows than the session has, or a mask that fits neither.
        """
        if inputs is not None and inputs.dim() != 2:
            raise InvalidArgument(f"inputs must be ids [batch, tokens], not {inputs.dim()}-dimensional")
        seen = max(0, session.position - prefix)
        past = _past(session, seen, setting.filler)
        if past is None:
            if mask is not None and inputs is not None and mask.shape != inputs.shape:
                raise InvalidArgument(
                    f"attention_mask has shape {list(mask.shape)}, but the inputs have {list(inputs.shape)}"
                )
            return cls(session, prefix, inputs, mask, 0)
        if inputs is None:
            inputs = past[:, :0]
        if len(inputs) != len(past):
            raise InvalidArgument(
                f"inputs have {len(inputs)} rows, but the session holds {len(past)}; "
                "open a new session for another batch"
            )
        ids = torch.cat([past.to(inputs.device), inputs], dim=1)
        if (
            ids.shape[1] == seen
        ):  # all of it was fed: feed the last one again, so that there is something to go on from
            session.position -= 1
            seen -= 1
        own = _own_mask(inputs, mask, ids.shape[1], setting)
        return cls(session, prefix, ids, _full_mask(session, prefix, past, own), past.shape[1])

    def reserve(self, expand: int, inputs_embeds: torch.Tensor | None) -> None:
        """Ask for as many rows as the turn will need."""
        given = self.ids if self.ids is not None else inputs_embeds
        if inputs_embeds is not None:
            self.embedded = inputs_embeds.shape[1] - (0 if self.ids is None else self.ids.shape[1])
        self.session.reserve((1 if given is None else len(given)) * expand)

    def finish(
        self, sequences: torch.Tensor, setting: Settings, *, blank: Callable[[int], torch.Tensor], last: bool
    ) -> torch.Tensor:
        """Leave the session ready for the next turn; answer with this turn's ids.

        Args:
            sequences: [rows × num_return_sequences, past + new] from transformers.
            setting: of this call.
            blank: makes hidden states [rows, 0, hidden].
            last: whether the session ends here, so that nothing needs to be made ready.
        """
        own = sequences[:, self.past :]
        if last:
            return own
        if self.embedded:
            lead = sequences.new_full((len(sequences), self.embedded), setting.filler)
            sequences = torch.cat([lead, sequences], dim=1)
        if setting.beams > 1:
            # Back to the prompt's end with one row per sequence; the next turn feeds the chosen ids.
            sequences = sequences[:: setting.returned]
            self.session.position = min(self.session.position, self._prompt_end())
            order = torch.arange(len(sequences)) * setting.beams
        else:
            order = torch.arange(len(sequences) // setting.expand).repeat_interleave(setting.expand)
        if self.session.batch != len(sequences):
            self.session.step(blank(len(sequences)), hypo_ids=order)
        self.session.output_ids = sequences
        _LEFT[self.session] = self.session.position
        return own

    def _prompt_end(self) -> int:
        tokens = 1 if self.ids is None and not self.embedded else 0
        return self.prefix + self.embedded + tokens + (0 if self.ids is None else self.ids.shape[1])

    def abandon(self, cache: RemoteCache, setting: Settings) -> None:
        """After an error or an interrupt: let `output_ids` say again what the session holds."""
        batch = self.session.batch
        if batch is None:
            return
        if setting.expand > 1:
            self.session.position = min(self.session.position, self._prompt_end())
        seen = max(0, self.session.position - self.prefix)
        known = [] if self.ids is None else [self.ids]
        if setting.expand == 1 and cache.fed:
            known = [
                torch.cat([*([] if self.ids is None else [self.ids[:, : cache.begun]]), *cache.fed], dim=1)
            ]
        if known and batch % len(known[0]) == 0:
            self.session.output_ids = known[0][:, :seen].repeat_interleave(batch // len(known[0]), dim=0)
        _LEFT[self.session] = self.session.position


def _past(session: Session, seen: int, filler: int) -> torch.Tensor | None:
    """Ids [rows, ≥ seen] of earlier turns, those that are still to be fed included; None = there was nothing."""
    ids = session.output_ids
    if ids is not None and session.batch is not None and len(ids) != session.batch:
        ids = None
    if ids is not None and session.position < _LEFT.get(session, 0):
        ids = ids[:, :seen]
    if ids is None:
        ids = torch.zeros(session.batch or 1, 0, dtype=torch.int64)
    unknown = seen - ids.shape[1]
    if unknown > 0:
        ids = torch.cat([ids, ids.new_full((len(ids), unknown), filler)], dim=1)
    return ids if ids.shape[1] else None


def _own_mask(inputs: torch.Tensor, mask: torch.Tensor | None, total: int, setting: Settings) -> torch.Tensor:
    """The mask of this turn's ids, given or found out as transformers does."""
    tokens = inputs.shape[1]
    if mask is None:
        return inputs.ne(setting.filler).long() if setting.pads_are_marked else torch.ones_like(inputs)
    if mask.dim() != 2 or mask.shape[1] not in (tokens, total):
        raise InvalidArgument(
            f"attention_mask has shape {list(mask.shape)}; give one of this turn's ids [batch, {tokens}] or of the "
            f"whole session [batch, {total}]"
        )
    return mask[:, mask.shape[1] - tokens :].long()


def _full_mask(session: Session, prefix: int, past: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    mask = torch.ones_like(past, device=own.device)
    padding = session.padding() if session.position > prefix else None
    if padding is not None:
        real = (~padding).long().to(own.device)
        if prefix:  # the trained prompts stand behind each row's first padding
            starts = (real.cumsum(dim=1) == 0).sum(dim=1).tolist()
            real = torch.stack(
                [torch.cat([row[:n], row[n + prefix :]]) for row, n in zip(real, starts, strict=True)]
            )
        mask[:, : real.shape[1]] = real[:, : mask.shape[1]]
    return torch.cat([mask, own], dim=1)


class OwnPart:
    """A streamer that is not shown the ids of earlier turns."""

    def __init__(self, streamer: Any, past: int) -> None:
        self._streamer = streamer
        self._past = past

    def put(self, value: torch.Tensor) -> None:
        self._streamer.put(value[:, self._past :] if self._past and value.dim() == 2 else value)
        self._past = 0

    def end(self) -> None:
        self._streamer.end()
