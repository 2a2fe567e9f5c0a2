"""A service of a test on an event loop in a thread of its own."""

import asyncio
import threading
from typing import Self


class LoopThread:
    """Runs `serve()` while its context is open. Derived classes say what to serve.

    `serve` calls `up()` once it can be reached, waits for `stopped`, and then puts things away.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stopped = asyncio.Event()
        self._up = threading.Event()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(
            target=self.loop.run_until_complete, args=(self.serve(),), daemon=True
        )
        self._thread.start()
        assert self._up.wait(30), f"{type(self).__name__} did not start"
        return self

    def __exit__(self, *error: object) -> None:
        self.loop.call_soon_threadsafe(self.stopped.set)
        self._thread.join(20)
        # A loop that still runs cannot be closed; the process ends without it.
        if not self._thread.is_alive():
            self.loop.close()

    def up(self) -> None:
        """It can be reached now."""
        self._up.set()

    async def serve(self) -> None:
        """Serve until `stopped`."""
        raise NotImplementedError
