"""Sessions: one generation over a chain of servers, and the replay that lets it survive them."""

from blockswarm.session.blocking import InferenceSession
from blockswarm.session.failures import Attempt, SessionLost
from blockswarm.session.session import AsyncInferenceSession

__all__ = ["AsyncInferenceSession", "Attempt", "InferenceSession", "SessionLost"]
