"""Some rows through a chain of servers, forward and back, whoever fails on the way."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import torch

from blockswarm.routing.hop import Hop, MissingBlocks
from blockswarm.session.failures import Budget
from blockswarm.training.call import Caller, Rows
from blockswarm_wire.errors import BlockSwarmError, CapacityError, LostError

if TYPE_CHECKING:
    from blockswarm.routing.manager import RemoteSequenceManager

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stage:
    """What one server was given in a forward pass: enough to ask it, or another one, for the gradients."""

    hop: Hop
    rows: Rows


@dataclass(slots=True)
class Chain:
    """Runs passes over the blocks of one manager. Lives on the background loop.

    Servers that fail are left out of the routes of this chain, and the manager learns of those to blame.
    """

    manager: "RemoteSequenceManager"
    _excluded: set[str] = field(default_factory=set)

    async def forward(self, rows: Rows, start: int, end: int) -> tuple[torch.Tensor, list[Stage]]:
        """Outputs of blocks start…end-1, and the stages that gave them.

        Raises:
            CallerError: the input is wrong; no server is blamed.
            SessionLost: no server could do it within the config's retries and failover_timeout.
        """
        budget = self._budget(start, end)
        stages: list[Stage] = []
        route: list[Hop] = []
        hidden, at = rows.hidden, start
        while at < end:
            if not route:
                route = await self._route(at, end, budget)
            hop = route[0]
            stage = Stage(hop, Rows(hidden=hidden, prompts=_cut(rows.prompts, hop, start), pad=rows.pad))
            output = await self._try(hop, budget, self._forward(stage))
            if output is None:
                route = []
                continue
            stages.append(stage)
            hidden, at = output, hop.end
            route = route[1:]
        return hidden, stages

    async def backward(
        self, stages: list[Stage], grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Gradients of the first stage's hidden states and of all prompts, in the order of the blocks.

        A stage whose server fails is run forward again elsewhere, for new inputs of what is now several servers.
        """
        left = list(stages)
        prompts: list[torch.Tensor] = []
        budget = self._budget(stages[0].hop.start, stages[-1].hop.end)
        while left:
            stage = left.pop()
            answer = await self._try(stage.hop, budget, self._backward(stage, grad))
            if answer is None:
                left += (await self.forward(stage.rows, stage.hop.start, stage.hop.end))[1]
                continue
            grad, own = answer
            if own is not None:
                prompts.insert(0, own)
        return grad, torch.cat(prompts) if prompts else None

    def _forward(self, stage: Stage) -> Callable[[], Awaitable[torch.Tensor]]:
        return lambda: self._caller().forward(self.manager.channel(stage.hop.address), stage.hop, stage.rows)

    def _backward(
        self, stage: Stage, grad: torch.Tensor
    ) -> Callable[[], Awaitable[tuple[torch.Tensor, torch.Tensor | None]]]:
        return lambda: self._caller().backward(
            self.manager.channel(stage.hop.address), stage.hop, stage.rows, grad
        )

    def _caller(self) -> Caller:
        config = self.manager.config
        return Caller(
            fingerprint=self.manager.fingerprint,
            server_timeout=config.server_timeout,
            silence_timeout=config.silence_timeout,
        )

    async def _try(self, hop: Hop, budget: Budget, work: Callable[[], Awaitable[_T]]) -> _T | None:
        """The result of `work` on one server; None when another server must do it."""
        try:
            result = await work()
        except (LostError, CapacityError) as error:
            self._note(hop, error)
            budget.spend(f"{hop.start}:{hop.end}", hop.server_id, hop.instance, error)
            await asyncio.sleep(budget.pause)
            return None
        self.manager.on_success(hop.server_id, hop.instance)
        return result

    def _note(self, hop: Hop, error: BlockSwarmError) -> None:
        self._excluded.add(hop.server_id)
        if isinstance(error, CapacityError):
            self.manager.on_busy(hop.server_id)
        elif error.blames_server:
            self.manager.on_failure(hop.server_id, hop.instance, error)

    async def _route(self, start: int, end: int, budget: Budget) -> list[Hop]:
        while True:
            try:
                return await self.manager.make_sequence(
                    start, end, mode="max_throughput", exclude=frozenset(self._excluded)
                )
            except MissingBlocks as error:
                budget.check(f"{start}:{end}")
                if self._excluded:
                    self._excluded.clear()  # better a server that failed once than none
                    await asyncio.sleep(max(budget.pause, self.manager.config.min_backoff))
                    continue
                if not await self.manager.changed(budget.left):
                    raise budget.lost(f"{start}:{end}", str(error)) from error

    def _budget(self, start: int, end: int) -> Budget:
        return Budget(self.manager.config, random.Random(self.manager.config.seed))


def _cut(prompts: torch.Tensor | None, hop: Hop, start: int) -> torch.Tensor | None:
    return None if prompts is None else prompts[hop.start - start : hop.end - start]
