"""Full garbage collections look only at what is new, and at everything now and then."""

import gc
import weakref

import pytest

from blockswarm_operator.collector import Collector


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.me = self


@pytest.fixture
def clock():
    """Seconds that pass when the test says so, and no trace of the collector afterwards."""
    seconds = [0.0]
    collector = Collector(lambda: seconds[0])
    collector.install()
    yield seconds
    gc.callbacks.remove(collector)
    gc.unfreeze()


def _dropped_survivor():
    """What has survived a full collection and is garbage now."""
    kept = Cycle()
    gc.collect()
    return weakref.ref(kept)


def test_survivors_are_set_aside_and_looked_at_ever_more_rarely(clock):
    for wait in (60, 120, 240, 480, 960, 1920, 3600, 3600):
        gone = _dropped_survivor()
        clock[0] += wait - 1
        gc.collect()
        assert gone() is not None, f"it was looked at again before {wait} s"
        clock[0] += 1
        gc.collect()
        assert gone() is None, f"it was not looked at after {wait} s"


def test_new_garbage_is_found_as_ever(clock):
    gc.collect()
    gone = weakref.ref(Cycle())
    gc.collect()
    assert gone() is None
