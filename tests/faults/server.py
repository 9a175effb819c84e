"""A server process of the tests' own: it may be crashed, and leaves nothing behind."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, TypeVar

HOST = "127.0.0.1"
S = TypeVar("S", bound="Server")
EVERYWHERE = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


class Server(ABC):
    """``with OwnPostgres() as server:``; ask ``unavailable()`` first."""

    users: ClassVar[tuple[str, ...]]
    """Whom to run it as, the first that exists, when we are root: these servers refuse root."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, **settings: object) -> None:
        """``settings`` are the server's own, by the names that it gives them."""
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def unavailable(cls) -> str | None:
        """Why it cannot be used here, in a line; None when it can."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """For a worker process that is to use this server."""

    @property
    def pid(self) -> int:
        assert self.process is not None, "it is not running"
        return self.process.pid

    def start(self) -> None:
        """Returns when it answers."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, start_new_session=True, **self._as_user()
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, f"it ended:\n{self._last_words()}"
            assert time.monotonic() < deadline, f"it does not answer:\n{self._last_words()}"
            time.sleep(0.05)

    def end(self, number: signal.Signals) -> None:
        """End it with this signal, and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=60)
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.end(self.stop_signal)

    def __enter__(self: S) -> S:
        assert (reason := self.unavailable()) is None, reason
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="rm_server_"))
        try:
            if user := self._user():
                os.chown(self.directory, user.pw_uid, user.pw_gid)
            self._prepare()
            self.start()
        except BaseException:
            self._clear()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    @abstractmethod
    def _prepare(self) -> None:
        """Fill the empty directory."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _connect(self) -> None:
        """Raise any exception as long as it does not answer."""

    def _answers(self) -> bool:
        try:
            self._connect()
        except Exception:
            return False
        return True

    def _run(self, *command: str) -> None:
        made = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            **self._as_user(),
        )
        assert made.returncode == 0, f"{command[0]}:\n{made.stdout.decode(errors='replace')}"

    def _as_user(self) -> dict[str, Any]:
        user = self._user()
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        # initdb and others fail in a working directory that they may not enter.
        return {"cwd": self.directory, "stdin": subprocess.DEVNULL, **who}

    @classmethod
    def _user(cls) -> pwd.struct_passwd | None:
        if os.geteuid() != 0:
            return None
        for name in (*cls.users, "nobody"):
            with suppress(KeyError):
                return pwd.getpwnam(name)
        return None

    def _last_words(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-3000:]

    def _clear(self) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def find_program(name: str, *patterns: str) -> str | None:
    """In the directories that the patterns name, the newest version first, then where programs are."""
    for pattern in patterns:
        for directory in sorted(map(str, Path("/").glob(pattern.lstrip("/"))), key=_version, reverse=True):
            if found := shutil.which(name, path=directory):
                return found
    return shutil.which(name, path=EVERYWHERE)


def _version(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


def free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
    return port
