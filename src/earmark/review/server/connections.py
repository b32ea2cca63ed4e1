"""Connections: those that ask for nothing are closed after a while, all of them at the end."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""How long a request may take to say what it wants; browsers open connections ahead of need."""

BODY_SECONDS = 30.0
"""How long a request may take to send what it posts."""


class ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP, but a connection is closed whose request does not come to the point.

    uvicorn itself counts the seconds between two requests alone.
    """

    _until_head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._until_head = self.loop.call_later(HEAD_SECONDS, self._close)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; stop waiting when all of its head is there."""
        if self._until_head is None and self._is_idle:
            self._until_head = self.loop.call_later(HEAD_SECONDS, self._close)
        super().data_received(data)
        if not self._is_idle:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Leave the time between two requests to uvicorn."""
        self._stop_waiting()
        super().on_response_complete()

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _stop_waiting(self) -> None:
        if self._until_head is not None:
            self._until_head.cancel()
            self._until_head = None

    def _close(self) -> None:
        self._until_head = None
        if self._is_idle:
            self.transport.close()


class ClosingServer(uvicorn.Server):
    """uvicorn's server, but no connection outlives it.

    uvicorn leaves those open whose answer is not read to its end, as a browser leaves a sound that
    it has enough of.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say goodbye as uvicorn does, then close what is left."""
        await super().shutdown(sockets)
        while self.server_state.connections:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # the loop closes what was aborted in its next turn
