"""A TCP proxy between a worker and its database, which can cut the line in five ways.

A cut holds for the connections there are and, while it lasts, for new ones. What a cut has broken
stays broken after ``restore()``: only new connections, and those that lost nothing, work again.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType

from .line import Line, hang_up, reset

CUTS = ("drop", "reset", "half_open", "swallow", "delay")
Target = tuple[str, int] | str  # a TCP address, or the path of a unix socket


class Proxy:
    """``with Proxy(("127.0.0.1", 5432)) as proxy:`` listens on ``proxy.port``.

    One thread owns every socket; the cuts are carried out there, and have happened on return.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connections = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self.turns = 0  # of its loop: an idle proxy takes none
        self._cut = ""
        self._late = 0.0
        self._lines: list[Line] = []
        self._orders: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._closing = False

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def address(self) -> str:
        """For ``TEST_POSTGRES_ADDRESS`` and ``TEST_MARIADB_ADDRESS``."""
        return f"{self.host}:{self.port}"

    @property
    def bytes(self) -> int:
        """Seen in both directions, swallowed ones too."""
        return self.bytes_up + self.bytes_down

    @property
    def open_lines(self) -> int:
        return len(self._lines)

    def drop(self) -> None:
        """Both sides are told that it is over; new connections are closed at once."""
        self._order(lambda: self._begin("drop", Line.hang_up))

    def reset(self) -> None:
        """Both sides get a RST; new connections too."""
        self._order(lambda: self._begin("reset", Line.reset))

    def half_open(self) -> None:
        """The server's side is closed, the client is told nothing: what it sends vanishes."""
        self._order(lambda: self._begin("half_open", Line.lose_server))

    def swallow(self) -> None:
        """Both sides stay open, every byte vanishes."""
        self._order(lambda: self._begin("swallow", Line.swallow))

    def delay(self, seconds: float) -> None:
        """Every chunk, and the end of a connection too, arrives this much later."""
        self._order(lambda: self._begin("delay", Line.speak_again, late=seconds))

    def cut(self, name: str, *, seconds: float = 1.0) -> None:
        """One of ``CUTS`` by its name; ``seconds`` are for ``delay``."""
        assert name in CUTS, name
        getattr(self, name)(*([seconds] if name == "delay" else []))

    def restore(self) -> None:
        self._order(lambda: self._begin("", Line.speak_again))

    def __enter__(self) -> Proxy:
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((self.host, 0), backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._bell, self._ring = socket.socketpair()
        for sock in (self._listener, self._bell):
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"proxy {self.port}", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._ring.send(b"!")
        self._thread.join(timeout=30)
        assert not self._thread.is_alive(), "the proxy's thread does not end"
        for sock in (self._bell, self._ring):
            sock.close()  # not before: the thread may end while we ring

    def _order(self, action: Callable[[], None]) -> None:
        done: Future[None] = Future()
        self._orders.append((action, done))
        self._ring.send(b"!")
        done.result(timeout=30)

    def _begin(self, cut: str, act: Callable[[Line], None], *, late: float = 0.0) -> None:
        self._cut, self._late = cut, late
        for line in self._lines:
            act(line)

    def _run(self) -> None:
        try:
            while not self._closing:
                self.turns += 1
                self._turn()
        finally:
            for line in self._lines:
                line.reset()
            self._listener.close()
            self._selector.close()

    def _turn(self) -> None:
        now = time.monotonic()
        for line in self._lines:
            if not line.closed:
                line.flush(now)
            if not line.closed and line.finished:
                line.hang_up()
        self._lines = [line for line in self._lines if not line.closed]
        self._watch(now)
        for key, events in self._selector.select(self._pause(now)):
            self._answer(key, events)

    def _watch(self, now: float) -> None:
        """Bring the selector up to date; sockets that were closed since have left it by their number."""
        wanted = {self._listener: (selectors.EVENT_READ, None), self._bell: (selectors.EVENT_READ, None)}
        for line in self._lines:
            wanted.update({sock: (events, line) for sock, events in line.interests(now) if events})
        for key in list(self._selector.get_map().values()):
            if wanted.get(key.fileobj) != (key.events, key.data):
                self._selector.unregister(key.fileobj)
        known = {key.fileobj for key in self._selector.get_map().values()}
        for sock, (events, data) in wanted.items():
            if sock not in known:
                self._selector.register(sock, events, data)

    def _pause(self, now: float) -> float | None:
        later = [due for line in self._lines for due in line.dues if due > now]
        return min(later) - now if later else None

    def _answer(self, key: selectors.SelectorKey, events: int) -> None:
        assert isinstance(key.fileobj, socket.socket)
        if key.fileobj is self._bell:
            self._obey()
        elif key.fileobj is self._listener:
            self._accept()
        elif events & selectors.EVENT_READ and not key.data.closed and key.fileobj.fileno() >= 0:
            self._read(key.data, key.fileobj)

    def _read(self, line: Line, source: socket.socket) -> None:
        from_client = source is line.client
        count = line.read(source, time.monotonic() + self._late)
        self.bytes_up += count if from_client else 0
        self.bytes_down += 0 if from_client else count

    def _obey(self) -> None:
        self._bell.recv(4096)
        while self._orders:
            action, done = self._orders.popleft()
            try:
                done.set_result(action())
            except BaseException as exc:
                done.set_exception(exc)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # it has gone again
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        if self._cut in ("drop", "reset"):
            (hang_up if self._cut == "drop" else reset)(client)
        else:
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = None if self._cut == "half_open" else _dial(self.target)
        except OSError:
            hang_up(client)
            return
        line = Line(client, server)
        line.mute = self._cut == "swallow"
        self._lines.append(line)


def _dial(target: Target) -> socket.socket:
    family = socket.AF_UNIX if isinstance(target, str) else socket.AF_INET
    server = socket.socket(family)
    try:
        server.settimeout(5)
        server.connect(target)
        server.setblocking(False)
        if family == socket.AF_INET:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        server.close()
        raise
    return server
