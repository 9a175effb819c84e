"""The proxy's five cuts, seen from both ends of a line."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.line import hang_up
from tests.faults.proxy import CUTS, Proxy
from tests.workers import eventually

SHORT = 0.3  # how long to listen for what must not come


class Echo:
    """A server that sends back what it gets, and notes how each connection ended."""

    def __init__(self) -> None:
        self.endings: list[str] = []
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in (self._accepting, *self._threads):
            thread.join(timeout=10)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=[client]))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(1 << 16):
                    self.received += data
                    client.sendall(data)
                self.endings.append("fin")
            except ConnectionResetError:
                self.endings.append("reset")


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.address) as between:
        yield between


@contextmanager
def client_of(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection((proxy.host, proxy.port), timeout=10) as client:
        yield client


def answer(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return receive(client, len(text))


def receive(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (data := client.recv(count - len(found))):
        found += data
    return found


def is_silent(client: socket.socket) -> bool:
    """Neither bytes nor an end come; what is sent is taken."""
    client.sendall(b"anyone?")
    client.settimeout(SHORT)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)
    return False


def test_bytes_go_both_ways_unchanged(proxy: Proxy, echo: Echo) -> None:
    """Far more than the buffers hold arrives in order, and is counted; so does the end."""
    sent = bytes(range(256)) * 40_000
    with client_of(proxy) as client:
        threading.Thread(target=client.sendall, args=[sent]).start()
        assert receive(client, len(sent)) == sent
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    eventually(lambda: proxy.open_lines == 0)
    assert echo.endings == ["fin"]
    assert (proxy.bytes_up, proxy.bytes_down, proxy.connections) == (len(sent), len(sent), 1)


def test_a_server_that_does_not_read_makes_the_client_wait() -> None:
    """The proxy does not take in more than a network would hold."""
    with socket.create_server(("127.0.0.1", 0)) as listener, Proxy(listener.getsockname()) as proxy:
        with client_of(proxy) as client:
            client.settimeout(SHORT)
            with pytest.raises(TimeoutError):
                client.sendall(bytes(64 << 20))
            assert 0 < proxy.bytes_up < 32 << 20


def test_hanging_up_sends_fin_though_bytes_are_unread() -> None:
    """The system itself would send a RST then: a drop would be a reset."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname(), timeout=10) as client:
            server, _ = listener.accept()
            client.sendall(b"unread")
            assert server.recv(6, socket.MSG_PEEK) == b"unread"
            server.setblocking(False)
            hang_up(server)
            assert client.recv(1) == b""


def test_drop_ends_both_sides_with_fin(proxy: Proxy, echo: Echo) -> None:
    """Old connections end in order on both sides, new ones at once, until it is restored."""
    with client_of(proxy) as client:
        assert answer(client, b"before") == b"before"
        proxy.drop()
        assert client.recv(1) == b""
    eventually(lambda: echo.endings == ["fin"])
    with client_of(proxy) as client:
        assert client.recv(1) == b""
    assert echo.received == b"before"
    restored(proxy)


def test_reset_ends_both_sides_with_rst(proxy: Proxy, echo: Echo) -> None:
    """Both sides see a reset, new connections too, until it is restored."""
    with client_of(proxy) as client:
        assert answer(client, b"before") == b"before"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    eventually(lambda: echo.endings == ["reset"])
    with pytest.raises(ConnectionResetError), client_of(proxy) as client:
        client.recv(1)
    restored(proxy)


def test_half_open_tells_only_the_server(proxy: Proxy, echo: Echo) -> None:
    """The server's side ends; the client's bytes are taken and vanish, after the restoration too."""
    with client_of(proxy) as client, client_of(proxy) as other:
        assert answer(client, b"before") == b"before"
        assert answer(other, b"before") == b"before"
        proxy.half_open()
        eventually(lambda: echo.endings == ["fin", "fin"])
        with client_of(proxy) as late:
            assert is_silent(late)
        assert is_silent(client)
        restored(proxy)
        assert is_silent(client)
    assert echo.received.count(b"before") == 2
    assert b"anyone?" not in echo.received
    eventually(lambda: proxy.open_lines == 0)


def test_swallow_leaves_both_sides_open(proxy: Proxy, echo: Echo) -> None:
    """Nothing arrives and nothing ends. Restored, a line that lost bytes stays silent for its client
    and has ended for its server; one that lost none goes on."""
    with client_of(proxy) as client, client_of(proxy) as quiet:
        assert answer(client, b"before") == b"before"
        assert answer(quiet, b"before") == b"before"
        proxy.swallow()
        with client_of(proxy) as late:
            assert is_silent(late)
        assert is_silent(client)
        assert echo.endings == []
        proxy.restore()
        eventually(lambda: echo.endings == ["fin", "fin"])
        restored(proxy)
        assert is_silent(client)
        assert answer(quiet, b"after") == b"after"
    assert b"anyone?" not in echo.received


def test_swallow_hides_the_end_of_a_client(proxy: Proxy, echo: Echo) -> None:
    """The server hears of a client that went away only when it is restored."""
    with client_of(proxy) as client:
        assert answer(client, b"before") == b"before"
        proxy.swallow()
    time.sleep(SHORT)  # for an end that must not come
    assert echo.endings == []
    proxy.restore()
    eventually(lambda: echo.endings == ["fin"] and proxy.open_lines == 0)


def test_delay_makes_every_chunk_late(proxy: Proxy, echo: Echo) -> None:
    """There and back takes two delays at least, in order; restored, it is at once again."""
    with client_of(proxy) as client:
        proxy.delay(SHORT)
        began, turns = time.monotonic(), proxy.turns
        assert answer(client, b"one") + answer(client, b"two") == b"onetwo"
        assert time.monotonic() - began >= 4 * SHORT
        assert proxy.turns - turns < 50  # it rests meanwhile
        proxy.restore()
        began = time.monotonic()
        assert answer(client, b"three") == b"three"
        assert time.monotonic() - began < 2 * SHORT


def test_a_target_that_is_away_closes_the_client(echo: Echo) -> None:
    """As a refused connection would, later, when the server is down."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = nobody.getsockname()
    with Proxy(address) as proxy, client_of(proxy) as client:
        assert client.recv(1) == b""
        assert proxy.connections == 1


def test_a_unix_socket_is_a_target_too(tmp_path: Path) -> None:
    """The bundled PostgreSQL has no TCP port."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with Proxy(path) as proxy, client_of(proxy) as client:
            server, _ = listener.accept()
            with server:
                client.sendall(b"hello")
                assert server.recv(5) == b"hello"


@pytest.mark.parametrize("cut", ["", *CUTS])
def test_closing_leaves_nothing_behind(echo: Echo, cut: str) -> None:
    """Whatever the state of the lines: no thread, no file descriptor; and an idle proxy rests."""
    threads, files = set(threading.enumerate()), open_files()
    with Proxy(echo.address) as proxy:
        client = socket.create_connection((proxy.host, proxy.port), timeout=10)
        assert answer(client, b"before") == b"before"
        if cut:
            proxy.cut(cut, seconds=0.01)
            with suppress(ConnectionResetError), client_of(proxy):
                pass
        time.sleep(SHORT)
        turns = proxy.turns
        time.sleep(SHORT)
        assert proxy.turns == turns
    client.close()
    eventually(lambda: set(threading.enumerate()) <= threads and open_files() == files)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def restored(proxy: Proxy) -> None:
    proxy.restore()
    with client_of(proxy) as client:
        assert answer(client, b"again") == b"again"
