"""The tokens that transformers generates on this machine, and the comparison with a pod's."""

from functools import cached_property
from pathlib import Path

from kube.generator import Run

PROMPT = "def fibonacci(n):"
# As many as the longest run may take; the pace of runs fits it.
TOKENS = 700
# Below this distance of the two best scores, two correct programs may choose differently.
_CLEAR = 1e-3


class Reference:
    """Greedy continuation of PROMPT by the whole model, computed once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def prompt(self) -> list[int]:
        """The prompt as ids."""
        from transformers import AutoTokenizer

        ids: list[int] = AutoTokenizer.from_pretrained(self._folder)(PROMPT).input_ids
        return ids

    @cached_property
    def ids(self) -> list[int]:
        """The new tokens."""
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(self._folder, dtype=torch.float32).eval()
        answer = model.generate(
            torch.tensor([self.prompt]),
            do_sample=False,
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
            output_scores=True,
            return_dict_in_generate=True,
        )
        best = torch.stack(answer.scores)[:, 0].topk(2).values
        gap = float((best[:, 0] - best[:, 1]).min())
        assert gap > _CLEAR, f"the prompt has a near-tie ({gap:.1e}): choose another one"
        ids: list[int] = answer.sequences[0, len(self.prompt) :].tolist()
        return ids

    def check(self, run: Run, what: str, *, at_least: int = 1) -> None:
        """Fail unless a run generated exactly these tokens."""
        assert run.error is None, f"{what}: after {len(run.ids)} tokens {run.error}"
        assert len(run.ids) >= at_least, f"{what}: only {len(run.ids)} tokens"
        wanted = self.ids[: len(run.ids)]
        different = [number for number, (a, b) in enumerate(zip(wanted, run.ids, strict=True)) if a != b]
        assert not different, f"{what}: token {different[0]} of {len(run.ids)} differs from transformers'"
