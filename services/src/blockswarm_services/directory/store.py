"""What a directory knows, in memory: the newest record and statement of each server. Pure; times are arguments."""

from collections.abc import Iterable
from dataclasses import dataclass

from blockswarm_wire.errors import TooManySessions
from blockswarm_wire.record import ModelEntry, ServerRecord, State, Statement, merge

MAX_SERVERS = 20_000
MAX_MODELS = 500
# How long a model without servers is still listed in the coverage metrics, so that an alert on zero can fire.
_MODEL_MEMORY_SECONDS = 3600.0
_MODEL_TTL_SECONDS = 120.0


@dataclass(slots=True)
class Row:
    """One server of one model."""

    server_id: str
    record: ServerRecord | None = None
    statement: Statement | None = None

    def identity(self) -> tuple[object, ...]:
        """What new sessions must hear of at once; load figures are not in it."""
        record, said = self.record, self.statement
        return (
            record and (record.instance, record.state, record.address, record.start, record.end),
            said and (said.state, said.instance),
        )


class Store:
    """Rows by model key and server id. The newest issue wins; expired ones go at `expire`."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Row]] = {}
        self._models: dict[str, tuple[ModelEntry, float]] = {}

    def put(self, model_key: str, item: ServerRecord | Statement) -> tuple[bool, bool]:
        """Take a record or statement; returns (whether anything changed, whether sessions must hear of it at once).

        Raises:
            TooManySessions: the store is full and this server is new.
        """
        rows = self._rows.setdefault(model_key, {})
        row = rows.get(item.server_id)
        if row is None:
            if self.size() >= MAX_SERVERS:
                raise TooManySessions(f"this directory knows {MAX_SERVERS} servers and takes no more")
            row = rows[item.server_id] = Row(item.server_id)
        before = row.identity()
        old = row.record if isinstance(item, ServerRecord) else row.statement
        if old is not None and old.issued_at >= item.issued_at:
            return False, False
        if isinstance(item, ServerRecord):
            row.record = item
        else:
            row.statement = item
        return True, row.identity() != before

    def put_model(self, entry: ModelEntry, now: float) -> None:
        """Note that `entry` was in the DHT's list of models at `now`. New ones beyond the limit are ignored."""
        if entry.key in self._models or len(self._models) < MAX_MODELS:
            self._models[entry.key] = (entry, now)

    def rows(self, model_key: str, now: float) -> list[Row]:
        """Unexpired rows of a model, by server id; a row's expired half is None."""
        live = (_live(row, now) for row in self._rows.get(model_key, {}).values())
        return sorted((row for row in live if row is not None), key=lambda row: row.server_id)

    def models(self, now: float) -> list[ModelEntry]:
        """Models that were announced within two minutes of `now`, by key."""
        live = [entry for entry, seen in self._models.values() if now - seen <= _MODEL_TTL_SECONDS]
        return sorted(live, key=lambda entry: entry.key)

    def model(self, key: str) -> ModelEntry | None:
        """The entry of a model seen within the last hour."""
        known = self._models.get(key)
        return None if known is None else known[0]

    def keys(self) -> set[str]:
        """Keys of every model that is listed or has rows."""
        return set(self._rows) | set(self._models)

    def size(self) -> int:
        return sum(len(rows) for rows in self._rows.values())

    def expire(self, now: float) -> set[str]:
        """Drop what has expired; returns the keys of the models that lost something."""
        touched = set()
        for key, rows in list(self._rows.items()):
            for server_id, row in list(rows.items()):
                live = _live(row, now)
                if live == row:
                    continue
                touched.add(key)
                if live is None:
                    del rows[server_id]
                else:
                    rows[server_id] = live
            if not rows:
                del self._rows[key]
        self._models = {k: v for k, v in self._models.items() if now - v[1] <= _MODEL_MEMORY_SECONDS}
        return touched

    def coverage(self, now: float) -> dict[str, list[int]]:
        """For each known model, how many servers serve each block (ONLINE, or DRAINING with sessions to finish)."""
        return {
            key: count_coverage(self.rows(key, now), entry.num_blocks, now)
            for key, (entry, _) in self._models.items()
        }


def count_coverage(rows: Iterable[Row], num_blocks: int, now: float) -> list[int]:
    """How many of `rows` serve each of the blocks 0…num_blocks-1."""
    counts = [0] * num_blocks
    for row in rows:
        view = merge(row.record, row.statement, now=now)
        if view is None or view.record is None or view.state not in (State.ONLINE, State.DRAINING):
            continue
        for block in range(view.record.start, min(view.record.end, num_blocks)):
            counts[block] += 1
    return counts


def _live(row: Row, now: float) -> Row | None:
    record = row.record if row.record is not None and row.record.expires_at > now else None
    statement = row.statement if row.statement is not None and row.statement.expires_at > now else None
    if record is None and statement is None:
        return None
    return Row(row.server_id, record, statement)
