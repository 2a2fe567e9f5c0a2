"""What the API server refused, as conditions: a person must correct it, and no other condition tells."""

from collections.abc import Sequence

from blockswarm_operator.applying import NameTaken
from blockswarm_operator.cluster import ApiError
from blockswarm_operator.conditions import Condition

# Nobody needs to act on these: the next pass may succeed. 404 and 409 are races; 0 is no answer in time.
_PASSING = (0, 404, 408, 409, 429)
_TWO_BUDGETS = "more than one PodDisruptionBudget"


def with_failures(
    found: Sequence[Condition], *, failure: Exception | None, kept: Exception | None
) -> list[Condition]:
    """The conditions, with those replaced of which the API server's answer is the truth.

    Args:
        failure: why the children of the BlockServer are not as they shall be.
        kept: why a pod of it could not leave.
    """
    told = [one for one in (_of_children(failure), _of_pod(kept)) if one is not None]
    replaced = {one.type: one for one in told}
    return [replaced.get(one.type, one) for one in found]


def _of_children(error: Exception | None) -> Condition | None:
    if isinstance(error, NameTaken):
        return Condition("Accepted", "False", "NameTaken", str(error))
    if isinstance(error, ApiError) and _lasts(error):
        remedy = "what runs stays as it is. Correct the field, quota or admission rule that it names"
        return Condition(
            "Accepted", "False", "Refused", f"the API server refuses its objects: {error}; {remedy}"
        )
    return None


def _of_pod(error: Exception | None) -> Condition | None:
    if isinstance(error, ApiError) and (_lasts(error) or _TWO_BUDGETS in str(error)):
        remedy = "no other PodDisruptionBudget may select its pods, and no admission rule may keep them"
        return Condition(
            "Progressing", "False", "CannotEvict", f"a pod cannot be made to leave: {error}; {remedy}"
        )
    return None


def _lasts(error: ApiError) -> bool:
    return error.code < 500 and error.code not in _PASSING
