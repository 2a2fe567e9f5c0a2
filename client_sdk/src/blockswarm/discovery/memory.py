"""What was last seen of a model, kept while the source is away. Pure; times are arguments."""

from dataclasses import dataclass, field

from blockswarm_wire.limits import RECORD_TTL_SECONDS
from blockswarm_wire.record import ServerView


@dataclass(slots=True)
class Memory:
    """The last views that were worth believing, by model key."""

    _views: dict[str, tuple[list[ServerView], float]] = field(default_factory=dict)

    def believe(self, key: str, views: list[ServerView], *, alone: bool, now: float) -> bool:
        """Take a new view; False when the one in memory is better and stays.

        A directory that has just restarted and has no peer yet knows nobody: for as long as records live, its empty
        answer does not replace what was seen before.
        """
        known = self._views.get(key)
        if not views and alone and known is not None and known[0] and now - known[1] < RECORD_TTL_SECONDS:
            return False
        self._views[key] = (views, now)
        return True

    def recall(self, key: str) -> list[ServerView] | None:
        """The last view believed; None = there never was one."""
        known = self._views.get(key)
        return None if known is None else list(known[0])
