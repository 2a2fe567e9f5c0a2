"""An attention mask becomes steps whose padding is on the left."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blockswarm.models.padding import Piece, leading_pads, pieces
from blockswarm_wire.errors import InvalidArgument


def mask(*rows):
    return torch.tensor([[int(c) for c in row] for row in rows])


@pytest.mark.parametrize(
    ("rows", "tokens", "expected"),
    [
        (None, 5, [Piece(0, 5)]),
        (["1111"], 3, [Piece(0, 3)]),
        (["0011", "1111"], 4, [Piece(0, 4, [2, 0])]),
        (["0011", "1111"], 2, [Piece(0, 2)]),  # padding of the past is the session's business
        (["1001"], 4, [Piece(0, 1), Piece(1, 4, [2])]),
        (["1011", "1101"], 4, [Piece(0, 1), Piece(1, 2, [1, 0]), Piece(2, 4, [0, 1])]),
        (["0001", "0000"], 4, [Piece(0, 4, [3, 4])]),  # a row may consist of padding only
        (["01"], 1, [Piece(0, 1)]),
        (["11"], 0, [Piece(0, 0)]),
    ],
)
def test_pieces(rows, tokens, expected):
    assert pieces(None if rows is None else mask(*rows), tokens) == expected


@settings(deadline=None)
@given(st.data())
def test_pieces_say_the_same_as_the_mask(data):
    rows, tokens = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 8))
    bits = data.draw(
        st.lists(st.lists(st.booleans(), min_size=tokens, max_size=tokens), min_size=rows, max_size=rows)
    )
    whole = torch.tensor(bits)
    whole[:, -1] = True
    rebuilt = torch.zeros_like(whole)
    end = 0
    for piece in pieces(whole.long(), tokens):
        assert piece.start == end
        end = piece.end
        for row, pad in enumerate(piece.pad or [0] * rows):
            rebuilt[row, piece.start + pad : piece.end] = True
    assert end == tokens
    assert torch.equal(rebuilt, whole)


def test_padding_on_the_right_leaves_nothing_to_go_on_from():
    with pytest.raises(InvalidArgument, match="pad on the left"):
        pieces(mask("0110", "1111"), 4)


def test_dimensions():
    with pytest.raises(InvalidArgument, match="2-dimensional"):
        pieces(torch.ones(1, 1, 4, 4), 4)


def test_leading_pads_of_a_pass():
    assert leading_pads(None, 4) is None
    assert leading_pads(mask("1111", "1100"), 4) is None
    assert leading_pads(mask("0011", "1100"), 4) == [2, 0]
    with pytest.raises(InvalidArgument, match="between"):
        leading_pads(mask("0101"), 4)
