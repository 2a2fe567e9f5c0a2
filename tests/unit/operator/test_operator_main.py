"""What the process does before it works."""

from operator_objects import SETTINGS

from blockswarm_operator import main
from blockswarm_operator.cluster import ApiError
from blockswarm_operator.metrics import Metrics


class Answers:
    """An API server that gives these answers, one after the other."""

    def __init__(self, *answers):
        self.left = list(answers)

    async def read(self, kind, namespace, name):
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_it_waits_until_the_kind_is_there(monkeypatch):
    """kopf looks once for kinds: begun without the CRD, it would look after nothing for ever."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(main.asyncio, "sleep", sleep)
    answers = Answers(None, ApiError(503, "etcd"), None, {"items": []})
    await main._Work(SETTINGS, answers, Metrics())._wait_for_the_kind()
    assert answers.left == []
    assert len(pauses) == 3
