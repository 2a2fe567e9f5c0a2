"""Objects that the watches still show though the API server has them no longer.

When the API server has forgotten where a watch was (410, as after its restart), kopf lists anew and tells of nobody
who vanished in between; likewise when the CRD itself was deleted. Such a budget would be believed and hold nothing,
the children of such a BlockServer would be made again for ever. Whoever finds one ends the process: the next holder of
the lease begins with fresh lists.
"""

import asyncio
import logging
from collections.abc import Sequence

from blockswarm_operator import names
from blockswarm_operator.cluster import ApiError, Cluster
from blockswarm_operator.kinds import CHILDREN
from blockswarm_operator.view import View

logger = logging.getLogger(__name__)
# An event may come later than a list that knows of it already, but hardly 20 s later.
_LOOK_SECONDS, _SETTLE_SECONDS = 120.0, 20.0


async def until_ghosts(view: View, cluster: Cluster, namespaces: Sequence[str]) -> None:
    """Compare the view with the API server every two minutes; return when an object is a ghost at two looks.

    Args:
        namespaces: those that are watched; empty = all.
    """
    suspects: set[str] = set()
    while True:
        await asyncio.sleep(_SETTLE_SECONDS if suspects else _LOOK_SECONDS)
        try:
            found = await _vanished(view, cluster, namespaces)
        except ApiError as error:
            logger.info("cannot compare with the API server", extra={"error": str(error)})
            continue
        except Exception:  # whatever it is: it must not end an operator that works
            logger.exception("cannot compare with the API server")
            continue
        if found & suspects:
            logger.error(
                "the watches missed deletions: beginning anew", extra={"objects": sorted(found)[:20]}
            )
            return
        suspects = found


async def _vanished(view: View, cluster: Cluster, namespaces: Sequence[str]) -> set[str]:
    """ "Kind uid" of what the view shows and the API server does not have."""
    found: set[str] = set()
    for kind in ("BlockServer", "Pod", "Node", *CHILDREN):
        # Before the list: what is made meanwhile is no ghost.
        shown = view.uids(kind)
        if shown:
            found |= {f"{kind} {uid}" for uid in shown - await _listed(kind, cluster, namespaces)}
    return found


async def _listed(kind: str, cluster: Cluster, namespaces: Sequence[str]) -> set[str]:
    selector = "" if kind in ("BlockServer", "Node") else names.SELECTOR
    places = namespaces if namespaces and kind != "Node" else [""]
    return set().union(*[await cluster.list_uids(kind, place, selector) for place in places])
