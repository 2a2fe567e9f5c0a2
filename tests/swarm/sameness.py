"""Are two generations the same? Ids are equal, or first differ where the two best scores are nearly equal."""

from dataclasses import dataclass, field

import torch

GAP = 1e-4


@dataclass
class NearTies:
    """What was compared in this run, and where rows parted at a near-tie."""

    compared: int = 0
    parted: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        where = f": {'; '.join(self.parted)}" if self.parted else ""
        return f"sameness: {self.compared} rows compared, {len(self.parted)} parted at a gap below {GAP:g}{where}"


NEAR_TIES = NearTies()


def assert_same(want, got: torch.Tensor, prompt: int, what: str) -> None:
    """`want`: transformers' answer with output_scores; `got`: ids [rows, prompt + new], both greedy."""
    assert got.shape == want.sequences.shape, what
    for row, (a, b) in enumerate(zip(want.sequences[:, prompt:], got[:, prompt:], strict=True)):
        NEAR_TIES.compared += 1
        different = (a != b).nonzero()
        if not len(different):
            continue
        step = int(different[0])
        best = want.scores[step][row].topk(2).values
        gap = float(best[0] - best[1])
        assert gap < GAP, f"{what}: row {row} parts at new token {step}, where the gap is {gap:.2e}"
        NEAR_TIES.parted.append(f"{what} row {row} token {step} gap {gap:.1e}")
