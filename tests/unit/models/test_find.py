"""Which served model is this one?"""

import pytest

from blockswarm.models.find import ModelNotServed, find_model
from blockswarm_wire.errors import CapacityError, InvalidArgument, Unreachable
from blockswarm_wire.fingerprint import model_key
from blockswarm_wire.record import ModelEntry

PRINTS = {"float32": "a" * 64, "bfloat16": "b" * 64, "float16": "c" * 64}


def entry(print_, name="llama"):
    return ModelEntry(key=model_key(name, print_), name=name, num_blocks=4, fingerprint=print_)


class Swarm:
    def __init__(self, *answers):
        self.answers = list(answers)

    async def models(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def find(swarm, dtype=None, timeout=0.05):
    return await find_model(swarm, "llama", PRINTS, dtype=dtype, timeout=timeout)


async def test_dtype_comes_from_the_swarm():
    assert await find(Swarm([entry("b" * 64)])) == (entry("b" * 64), "bfloat16")
    assert (await find(Swarm([entry("c" * 64), entry("a" * 64)])))[1] == "float32"
    assert (await find(Swarm([entry("c" * 64), entry("a" * 64)]), "float16"))[1] == "float16"


async def test_another_dtype_is_an_error_that_says_which_there_are():
    with pytest.raises(InvalidArgument, match="served as bfloat16, float16, not as float32"):
        await find(Swarm([entry("c" * 64), entry("b" * 64)]), "float32")


async def test_not_served_lists_what_is():
    with pytest.raises(ModelNotServed, match="Served: mistral dddddddd") as caught:
        await find(Swarm([entry("d" * 64, "mistral")]))
    assert isinstance(caught.value, CapacityError)
    with pytest.raises(ModelNotServed, match="other weights"):
        await find(Swarm([entry("d" * 64)]))
    with pytest.raises(ModelNotServed, match="none at all"):
        await find(Swarm([]))


async def test_it_waits_for_the_swarm_and_for_the_model():
    swarm = Swarm(Unreachable("away"), [], [entry("a" * 64)])
    assert (await find(swarm, timeout=5))[0] == entry("a" * 64)
    with pytest.raises(Unreachable, match="away"):
        await find(Swarm(Unreachable("away")))
