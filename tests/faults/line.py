"""One connection through the proxy: the client's socket, the server's, and what is between them."""

from __future__ import annotations

import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress

CHUNK = 1 << 16
LIMIT = 1 << 20  # bytes under way in one direction; the sender then has to wait, as with a real network
NO_LINGER = struct.pack("ii", 1, 0)


class Pipe:
    """One direction. An empty chunk is the end of the stream, at its place in the queue."""

    def __init__(self) -> None:
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.ended = False  # nothing more comes in

    @property
    def drained(self) -> bool:
        return self.ended and not self.chunks

    @property
    def wants_more(self) -> bool:
        return not self.ended and sum(len(data) for _, data in self.chunks) < LIMIT

    def put(self, data: bytes, due: float) -> None:
        self.chunks.append((due, data))
        self.ended = not data

    def flush(self, sink: socket.socket, now: float) -> None:
        while self.chunks and self.chunks[0][0] <= now:
            due, data = self.chunks.popleft()
            if not data:
                sink.shutdown(socket.SHUT_WR)
                continue
            try:
                sent = sink.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self.chunks.appendleft((due, data[sent:]))
                return


class Line:
    """``server`` is None once it has been taken away: the client is told nothing of it."""

    def __init__(self, client: socket.socket, server: socket.socket | None) -> None:
        self.client = client
        self.server = server
        self.up = Pipe()
        self.down = Pipe()
        self.mute = False
        self.damaged = False  # bytes have vanished: what came after them must never arrive
        self.closed = False

    @property
    def finished(self) -> bool:
        return self.up.ended if self.server is None else self.up.drained and self.down.drained

    @property
    def dues(self) -> list[float]:
        """When the next chunk of each direction is to be sent on."""
        return [pipe.chunks[0][0] for pipe in (self.up, self.down) if pipe.chunks]

    def interests(self, now: float) -> list[tuple[socket.socket, int]]:
        """What to watch each socket for."""
        found = [(self.client, self._events(self.up, self.down, now))]
        if self.server is not None:
            found.append((self.server, self._events(self.down, self.up, now)))
        return found

    def read(self, source: socket.socket, due: float) -> int:
        pipe = self.up if source is self.client else self.down
        try:
            data = source.recv(CHUNK)
        except BlockingIOError:
            return 0
        except OSError:
            if not self._is_silent:
                self.reset()
                return 0
            data = b""
        if self._is_silent:
            self.damaged, pipe.ended = True, not data
        else:
            pipe.put(data, due)
        return len(data)

    def flush(self, now: float) -> None:
        if self.server is None:
            return
        try:
            self.up.flush(self.server, now)
            self.down.flush(self.client, now)
        except OSError:  # one side was reset: so is the other
            self.reset()

    def swallow(self) -> None:
        self.mute = True
        self._discard()

    def lose_server(self) -> None:
        self.mute = False
        self._discard()
        if self.server is not None:
            hang_up(self.server)
            self.server = None

    def speak_again(self) -> None:
        """After a swallow. A stream with a hole in it must not go on: its server has given up on
        the client, as keepalives make it do, and its client waits for ever."""
        if self.mute and self.damaged:
            self.lose_server()
        self.mute = False

    def hang_up(self) -> None:
        self._close(hang_up)

    def reset(self) -> None:
        self._close(reset)

    @property
    def _is_silent(self) -> bool:
        return self.mute or self.server is None

    def _events(self, incoming: Pipe, outgoing: Pipe, now: float) -> int:
        events = selectors.EVENT_READ if incoming.wants_more else 0
        if outgoing.chunks and outgoing.chunks[0][0] <= now:
            events |= selectors.EVENT_WRITE
        return events

    def _discard(self) -> None:
        for pipe in (self.up, self.down):
            self.damaged = self.damaged or bool(pipe.chunks)
            pipe.chunks.clear()

    def _close(self, how: Callable[[socket.socket], None]) -> None:
        self.closed = True
        for sock in (self.client, self.server):
            if sock is not None:
                how(sock)


def hang_up(sock: socket.socket) -> None:
    """FIN. Unread bytes would make the system send a RST instead."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(CHUNK):
            pass
    sock.close()


def reset(sock: socket.socket) -> None:
    with suppress(OSError):  # a unix socket knows no RST
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    sock.close()
