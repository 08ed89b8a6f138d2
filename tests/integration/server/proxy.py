"""A TCP proxy that loses answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable


class LossyProxy:
    """Forwards to ``target``; once `lose_answers` is called, what comes back is dropped and the
    connection is cut when ``when`` becomes true. Later connections are served in full.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._losing = threading.Event()
        self._committed: Callable[[], bool] = lambda: False
        self.cut = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def lose_answers(self, when: Callable[[], bool]) -> None:
        """Drop what the server answers from now on, until ``when``; then cut the connection."""
        self._committed = when
        self._losing.set()

    def close(self) -> None:
        self._listener.close()
        for held in self._sockets:
            held.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            threading.Thread(
                target=self._forward, args=(client, server, False), daemon=True
            ).start()
            threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(65536):
                if answers and self._losing.is_set():
                    if self._committed():
                        self.cut += 1
                        self._losing.clear()
                        break
                    continue
                sink.sendall(data)
        except OSError:
            pass  # the other direction has closed it
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # already closed
