"""Keeping an address for several processes: who gets it, and what the next one finds."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apiary.errors import ConfigurationError
from apiary.local.starting import free_port
from apiary.server.addresses import shared_address

_REPOSITORY = Path(__file__).resolve().parents[3]
_ROUNDS = 100


class Keeper:
    """A process that keeps an address while it is told to."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.server.keeping_main"],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")

    def answer(self) -> str:
        """What came of the last line: kept, refused or free."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().split(maxsplit=1)[0].strip()

    def end(self) -> None:
        """SIGKILL: it can clean nothing up."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start_keeper() -> Iterator[Callable[[], Keeper]]:
    """Starts processes that keep addresses; they are gone when the test ends."""
    started: list[Keeper] = []

    def start() -> Keeper:
        started.append(Keeper())
        return started[-1]

    yield start
    for keeper in started:
        keeper.end()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("localhost", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("[::]", "0.0.0.0"),
    ],
)
def test_of_two_that_start_together_exactly_one_gets_the_port(
    start_keeper: Callable[[], Keeper], first: str, second: str
) -> None:
    if "[" in first and not _has_ipv6():
        pytest.skip("no IPv6 here")
    keepers = {start_keeper(): first, start_keeper(): second}
    port = free_port()
    outcomes: Counter[tuple[str, ...]] = Counter()
    for _ in range(_ROUNDS):
        for keeper, host in keepers.items():
            keeper.say(f"{host}:{port}")
        outcomes[tuple(sorted(keeper.answer() for keeper in keepers))] += 1
        for keeper in keepers:
            keeper.say("")
        assert {keeper.answer() for keeper in keepers} == {"free"}
    assert outcomes == {("kept", "refused"): _ROUNDS}


def test_one_that_was_killed_leaves_nothing_in_the_way(start_keeper: Callable[[], Keeper]) -> None:
    address = f"127.0.0.1:{free_port()}"
    for _ in range(3):
        keeper = start_keeper()
        keeper.say(address)
        assert keeper.answer() == "kept"
        keeper.end()


def test_a_port_that_is_kept_is_for_its_own_processes_only() -> None:
    with shared_address("127.0.0.1:0") as address:
        host, _, port = address.rpartition(":")
        with pytest.raises(ConfigurationError), shared_address(address):
            pass
        with pytest.raises(OSError, match="in use"), socket.create_server((host, int(port))):
            pass  # as a server of one process listens
        with (
            _sharing(host, int(port)) as one,
            _sharing(host, int(port)) as other,
            socket.create_connection((host, int(port))),
        ):
            assert one.getsockname() == other.getsockname()
            with pytest.raises(ConfigurationError), shared_address(address):
                pass


def test_connections_that_have_just_ended_are_not_in_the_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()  # who closes first keeps the end of it for a minute (TIME_WAIT)
    with shared_address(f"127.0.0.1:{port}") as address:
        assert address == f"127.0.0.1:{port}"


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as made:
        try:
            made.bind(("::1", 0))
        except OSError:
            return False
        return True


def _sharing(host: str, port: int) -> socket.socket:
    """Listens as gRPC does in one of several processes."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((host, port))
    made.listen()
    return made
