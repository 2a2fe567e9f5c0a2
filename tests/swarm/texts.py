"""Natural text of any number of tokens, from the licence that lies in this repository."""

from pathlib import Path

import torch

LICENSE = Path(__file__).parents[2] / "LICENSE"


def tokens(tokenizer, count: int, start: int = 0) -> torch.Tensor:
    """[1, count] ids, beginning at the `start`-th token of the text."""
    ids = tokenizer(LICENSE.read_text(), return_tensors="pt").input_ids
    assert ids.shape[1] >= start + count
    return ids[:, start : start + count]


def ragged(tokenizer, lengths: list[int], start: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, attention mask) [rows, longest], padded on the left; each row a text of its own."""
    width = max(lengths)
    ids = torch.full((len(lengths), width), tokenizer.pad_token_id)
    mask = torch.zeros_like(ids)
    for row, count in enumerate(lengths):
        ids[row, width - count :] = tokens(tokenizer, count, start + 37 * row)[0]
        mask[row, width - count :] = 1
    return ids, mask
