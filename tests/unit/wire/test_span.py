"""Spans: text to range and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.limits import MAX_BLOCKS
from blockswarm_wire.span import Span, uncovered


@given(st.integers(0, MAX_BLOCKS - 1), st.integers(1, MAX_BLOCKS))
def test_a_span_survives_its_text(start: int, length: int) -> None:
    end = min(start + length, MAX_BLOCKS)
    span = Span(start, end)
    assert Span.parse(str(span)) == span
    assert list(span.blocks()) == list(range(start, end))
    assert len(span) == end - start
    assert start in span
    assert end not in span
    assert span in span


@pytest.mark.parametrize(
    "text", ["", "1", "1:", ":1", "2:1", "1:1", "-1:2", "0:4097", "a:b", "1:2:3", " 1:2", "1:9999999"]
)
def test_bad_spans_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Span.parse(text)


@given(st.text(max_size=20))
def test_any_text_is_a_span_or_a_named_error(text: str) -> None:
    try:
        span = Span.parse(text)
    except InvalidArgument:
        return
    assert 0 <= span.start < span.end <= MAX_BLOCKS


def test_uncovered_blocks() -> None:
    assert uncovered([Span(0, 2), Span(1, 3), Span(5, 6)], 7) == [3, 4, 6]
