"""Sessions of a worker: how soon each side notices that the other is gone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from django.db import Error, OperationalError, connections, transaction
from django.db.backends.signals import connection_created

from reliable_messaging import Message, OutgoingMessage, enqueue_many
from reliable_messaging.conf import get_settings
from reliable_messaging.session import SessionLimits, handler_limits, private_connection
from reliable_messaging.workers import OutboxWorker, WorkerOptions
from tests.faults.proxy import Proxy
from tests.faults.server import HOST
from tests.faults.servers import OwnPostgres, PgBouncer
from tests.services import address_of
from tests.sessions import in_session
from tests.testapp.models import Order
from tests.workers import eventually, handling, run_worker

T = TypeVar("T")
LEASE = timedelta(seconds=60)


@pytest.fixture
def over_tcp(row_locking: str) -> Iterator[str]:
    """The bundled PostgreSQL has no TCP port, and a unix socket has no keepalives."""
    with ExitStack() as stack:
        if isinstance(address_of(row_locking), str):
            stack.enter_context(stack.enter_context(OwnPostgres()).standing_in())
        yield row_locking


def in_private_session(using: str, limits: SessionLimits, ask: Callable[[Any], T]) -> T:
    """What ``ask`` finds out on such a connection, in a thread of its own."""

    def work() -> T:
        with private_connection(using, limits):
            connections[using].ensure_connection()
            return ask(connections[using])

    return in_session(work).result(timeout=30)


def answer(connection: Any, sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return str(cursor.fetchone()[0])


def limits_of_a_worker(using: str) -> dict[str, SessionLimits]:
    worker = OutboxWorker(WorkerOptions(database=using, lease=LEASE))
    worker.waiter.close()
    return {"claiming": worker.session_limits, "handler": handler_limits(LEASE)}


@pytest.mark.parametrize("which", ["claiming", "handler"])
def test_the_server_probes_a_silent_worker_before_its_leases_end(over_tcp: str, which: str) -> None:
    """After 20 s and three times 6, for leases of 60 s: a vanished host's row locks go with its session.
    A transaction may only rest for so long: MariaDB has no such probes, and a host that was paused
    answers them."""
    limits = limits_of_a_worker(over_tcp)[which]

    def ask(connection: Any) -> dict[str, str]:
        if connection.vendor == "mysql":
            return {"idle_transaction_timeout": answer(connection, "SELECT @@idle_transaction_timeout")}
        names = [f"tcp_keepalives_{name}" for name in ("idle", "interval", "count")]
        names += ["tcp_user_timeout", "idle_in_transaction_session_timeout"]
        return {name: answer(connection, f"SHOW {name}") for name in names}

    longest = int(max(get_settings().HANDLER_TIMEOUT, LEASE).total_seconds())
    expected = {
        "mysql": {"idle_transaction_timeout": "60" if which == "claiming" else str(longest)},
        "postgresql": {
            "tcp_keepalives_idle": "20",
            "tcp_keepalives_interval": "6",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": "48000",
            "idle_in_transaction_session_timeout": "1min" if which == "claiming" else f"{longest // 60}min",
        },
    }
    assert in_private_session(over_tcp, limits, ask) == expected[connections[over_tcp].vendor]


def test_a_worker_probes_a_silent_server(over_tcp: str) -> None:
    """The driver's own socket. MariaDB's driver can only be told how long an answer may take."""
    if connections[over_tcp].vendor != "postgresql":
        pytest.skip("mysqlclient has no options for keepalives")

    def ask(connection: Any) -> list[int]:
        wanted = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        with socket.fromfd(connection.connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as sock:
            return [sock.getsockopt(socket.IPPROTO_TCP, option) for option in wanted]

    assert in_private_session(over_tcp, handler_limits(LEASE), ask) == [20, 6, 3, 48000]


@pytest.mark.parametrize(("lease", "seconds"), [(1, 2), (10, 5), (60, 10)])
@pytest.mark.parametrize("vendor", ["postgresql", "mysql"])
def test_an_attempt_to_connect_ends_within_the_lease(vendor: str, lease: int, seconds: int) -> None:
    """Longer silence is taken for a dead wire, and ends the process."""
    limits = handler_limits(timedelta(seconds=lease))
    assert limits.options(vendor)["connect_timeout"] == seconds


def test_what_the_project_says_goes_first(row_locking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPTIONS of the project's settings are kept."""
    with monkeypatch.context() as patch:
        patch.setitem(connections.settings[row_locking]["OPTIONS"], "connect_timeout", 7)
        found = in_private_session(
            row_locking, handler_limits(LEASE), lambda c: c.settings_dict["OPTIONS"]["connect_timeout"]
        )
    assert found == 7


def test_what_the_database_says_goes_first(row_locking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter limits, set for the database or the role, or by the project for each session."""
    names, option, told = {
        "postgresql": (
            ["idle_in_transaction_session_timeout", "lock_timeout"],
            ("options", "-c idle_in_transaction_session_timeout=7s -c lock_timeout=3s"),
            ["7s", "3s"],
        ),
        "mysql": (
            ["idle_transaction_timeout", "innodb_lock_wait_timeout"],
            ("init_command", "SET idle_transaction_timeout = 7, innodb_lock_wait_timeout = 3"),
            ["7", "3"],
        ),
    }[connections[row_locking].vendor]
    question = {"postgresql": "SELECT current_setting('{}')", "mysql": "SELECT @@{}"}

    def ask(connection: Any) -> list[str]:
        return [answer(connection, question[connection.vendor].format(name)) for name in names]

    limits = limits_for(lock=LEASE / 4)
    assert in_private_session(row_locking, limits, ask) != told
    with monkeypatch.context() as patch:
        patch.setitem(connections.settings[row_locking]["OPTIONS"], *option)
        assert in_private_session(row_locking, limits, ask) == told


def test_a_session_of_pgbouncer_s_is_left_as_it_is(row_locking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon it will be somebody else's, whose transactions and locks are not ours to limit."""
    if connections[row_locking].vendor != "postgresql":
        pytest.skip("PgBouncer is for PostgreSQL")
    if reason := PgBouncer.unavailable():
        pytest.skip(reason)
    names = ["idle_in_transaction_session_timeout", "lock_timeout"]

    def ask(connection: Any) -> list[str]:
        return [answer(connection, f"SHOW {name}") for name in names]

    limits = limits_for(lock=timedelta(seconds=5))
    assert in_private_session(row_locking, limits, ask) == ["1min", "5s"]
    with PgBouncer() as bouncer, monkeypatch.context() as patch:
        patch.setitem(connections.settings[row_locking], "HOST", HOST)
        patch.setitem(connections.settings[row_locking], "PORT", bouncer.port)
        assert in_private_session(row_locking, limits, ask) == ["0", "0"]


@pytest.mark.parametrize("what", ["row", "table"])
def test_a_lock_is_not_waited_for_until_the_lease_ends(row_locking: str, what: str) -> None:
    """A migration that takes minutes, a person at the console: an error, and not the silence of a dead
    wire, for which a worker would end itself."""
    Order.objects.using(row_locking).create(number=1)
    limits = limits_for(lock=timedelta(seconds=1))
    table = Order._meta.db_table
    vendor = connections[row_locking].vendor
    locking = {
        ("postgresql", "table"): f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
        ("mysql", "table"): f"LOCK TABLES {table} WRITE",
    }.get((vendor, what), f"SELECT * FROM {table} FOR UPDATE")

    def wait(connection: Any) -> str:
        with pytest.raises(OperationalError) as caught:
            Order.objects.using(row_locking).filter(number=1).update(number=2)
        return str(caught.value)

    with transaction.atomic(using=row_locking), connections[row_locking].cursor() as cursor:
        cursor.execute(locking)
        try:
            said = in_private_session(row_locking, limits, wait)
        finally:
            if (vendor, what) == ("mysql", "table"):
                cursor.execute("UNLOCK TABLES")
    assert "lock timeout" in said or "Lock wait timeout" in said


def test_a_transaction_that_rests_is_ended(row_locking: str) -> None:
    """The client is silent and says no goodbye: its row can be locked again."""
    Order.objects.using(row_locking).create(number=1)
    second = timedelta(seconds=1)
    limits = SessionLimits(lease=second, idle_in_transaction=second)

    def rest(connection: Any) -> bool:
        with pytest.raises(Error), transaction.atomic(using=row_locking):
            lock(row_locking)
            eventually(lambda: in_session(can_lock, row_locking).result(timeout=10), seconds=10)
            answer(connection, "SELECT 1")
        return True

    assert in_private_session(row_locking, limits, rest)


def test_the_locks_of_a_client_that_was_cut_off_are_gone(row_locking: str) -> None:
    """The server is told, the client is not, and goes on waiting: nobody waits with it."""
    Order.objects.using(row_locking).create(number=1)

    def hold(connection: Any) -> bool:
        with pytest.raises(Error), transaction.atomic(using=row_locking):
            lock(row_locking)
            assert not in_session(can_lock, row_locking).result(timeout=10)
            proxy.half_open()
            eventually(lambda: in_session(can_lock, row_locking).result(timeout=10), seconds=10)
            proxy.drop()
            answer(connection, "SELECT 1")
        return True

    with Proxy(address_of(row_locking)) as proxy:
        settings = connections.settings[row_locking]
        before = {name: settings[name] for name in ("HOST", "PORT")}

        def through_the_proxy() -> bool:
            settings.update(HOST=proxy.host, PORT=proxy.port)
            with private_connection(row_locking, handler_limits(LEASE)):
                settings.update(before)  # others, which ask whether they can lock, go past it
                connections[row_locking].ensure_connection()
                return hold(connections[row_locking])

        assert in_session(through_the_proxy).result(timeout=60)


def limits_for(lease: timedelta = LEASE, **options: Any) -> SessionLimits:
    return SessionLimits(lease=lease, **{"idle_in_transaction": lease, "read": lease, **options})


@pytest.mark.parametrize("seconds", [1, 10, 60])
def test_the_probes_of_a_silent_connection_end_within_the_lease(seconds: int) -> None:
    """On both sides. A shorter lease than three seconds cannot be met: TCP counts in seconds."""
    lease = timedelta(seconds=seconds)
    options = limits_for(lease).options("postgresql")
    assert options["keepalives_idle"] >= 1
    assert options["keepalives_interval"] >= 1
    taken = options["keepalives_idle"] + options["keepalives_count"] * options["keepalives_interval"]
    assert taken < max(seconds, 5)
    assert 1000 <= options["tcp_user_timeout"] <= max(1000, seconds * 1000)


def test_a_read_may_take_a_moment_however_short_the_lease() -> None:
    """MariaDB's driver gives up by this; a busy server needs more than a second now and then."""
    assert limits_for(timedelta(seconds=1)).options("mysql")["read_timeout"] == 5
    assert limits_for(LEASE).options("mysql")["read_timeout"] == 60
    assert "read_timeout" not in limits_for(read=None).options("mysql"), "a handler may take its time"


def test_a_handler_may_keep_its_transaction_waiting() -> None:
    """As long as the longest timeout of all handlers: the server must not cut it off before."""
    with handling("test.patient", print, timeout=timedelta(hours=3)):
        assert handler_limits(LEASE).idle_in_transaction == timedelta(hours=3)
    assert handler_limits(timedelta(days=1)).idle_in_transaction == timedelta(days=1)


def test_a_handler_may_take_longer_than_a_server_can_be_told(row_locking: str) -> None:
    """Then it is told the longest that it knows: a session that cannot be begun runs nothing."""
    with handling("test.patient", print, timeout=timedelta(days=800)):
        limits = handler_limits(LEASE)
    assert in_private_session(row_locking, limits, lambda connection: answer(connection, "SELECT 1")) == "1"


def test_a_session_that_hears_nothing_is_not_ended(row_locking: str) -> None:
    """A listener's: whoever has set such a limit for sessions that were forgotten did not mean it."""
    if connections[row_locking].vendor != "postgresql":
        pytest.skip("no such setting")
    limits = limits_for()

    def ask(connection: Any) -> str:
        connection.close()
        connection.settings_dict["OPTIONS"]["options"] = "-c idle_session_timeout=30s"
        return answer(connection, "SHOW idle_session_timeout")

    assert in_private_session(row_locking, limits, ask) == "0"


def test_a_session_that_could_not_be_told_is_not_used(
    row_locking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have no limits, or be dead already."""

    def refuse(self: SessionLimits, connection: Any) -> None:
        raise OperationalError("lost")

    def work() -> Any:
        with private_connection(row_locking, limits_for()):
            with pytest.raises(OperationalError):
                connections[row_locking].ensure_connection()
            return connections[row_locking].connection

    monkeypatch.setattr(SessionLimits, "apply", refuse)
    assert in_session(work).result(timeout=30) is None


def test_a_new_session_is_told_again(over_tcp: str) -> None:
    """Each time a connection begins, also after a lost one."""
    question = {
        "postgresql": "SHOW tcp_keepalives_idle",
        "mysql": "SELECT @@idle_transaction_timeout",
    }[connections[over_tcp].vendor]

    def ask(connection: Any) -> list[str]:
        answers = [answer(connection, question)]
        connection.close()
        return [*answers, answer(connection, question)]

    expected = {"postgresql": "20", "mysql": "60"}[connections[over_tcp].vendor]
    assert in_private_session(over_tcp, limits_for(), ask) == [expected] * 2


@pytest.mark.parametrize("atomic", [True, False])
def test_handlers_keep_the_session_of_their_thread(using: str, atomic: bool) -> None:
    """To connect for each message would cost more than the message. What the worker itself sets up in a
    new session is not taken for a handler's doing."""
    enqueue_many([OutgoingMessage(topic="test.kept", payload=n) for n in range(20)], using=using)
    sessions: list[object] = []

    def work(message: Message) -> None:
        connections[using].ensure_connection()
        sessions.append(connections[using].connection)

    with handling("test.kept", work, atomic=atomic):
        run_worker(using, concurrency=1)
    assert len(sessions) == 20
    assert all(session is sessions[0] for session in sessions)


def test_what_opens_a_session_elsewhere_is_no_handlers_doing(using: str) -> None:
    """A project's receiver of connection_created sets something in each session, also in one that a
    handler opens while it runs: that session is kept."""
    enqueue_many([OutgoingMessage(topic="test.elsewhere", payload=n) for n in range(3)], using=using)
    sessions: list[object] = []

    def prepare(connection: Any, **_: Any) -> None:
        if connection.alias == "other":
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA cache_size = 77")

    def work(message: Message) -> None:
        connections["other"].ensure_connection()
        sessions.append(connections["other"].connection)

    connection_created.connect(prepare)
    try:
        with handling("test.elsewhere", work, atomic=False):
            run_worker(using, concurrency=1)
    finally:
        connection_created.disconnect(prepare)
    assert len(sessions) == 3
    assert all(session is sessions[0] for session in sessions)


def test_the_shared_connection_is_given_back(row_locking: str) -> None:
    """Who calls a worker from a program of their own goes on with their own connection, and the private
    one is closed, whatever became of it."""

    def in_thread() -> tuple[bool, bool, bool]:
        shared = connections[row_locking]
        with pytest.raises(ZeroDivisionError), private_connection(row_locking, limits_for()):
            private = connections[row_locking]
            private.ensure_connection()
            raise ZeroDivisionError
        return private is not shared, connections[row_locking] is shared, private.connection is None

    assert in_session(in_thread).result(timeout=10) == (True, True, True)


def lock(using: str) -> None:
    assert Order.objects.using(using).select_for_update().get(number=1)


def can_lock(using: str) -> bool:
    with transaction.atomic(using=using):
        return Order.objects.using(using).select_for_update(skip_locked=True).filter(number=1).exists()
