"""What a system is to the harness."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...errors import ConfigurationError
from ..workloads import Request

__all__ = ["Adapter", "Threads", "missing_peer"]

T = TypeVar("T")
THREADS = 64


class Adapter(ABC):
    """A system that answers requests; opened and used in one event loop."""

    @abstractmethod
    async def open(self, url: str) -> None:
        """Get ready, with everything in the database at ``url``."""

    @abstractmethod
    async def call(self, request: Request) -> Any:
        """Do what is asked and return the result as a JSON document."""

    @abstractmethod
    async def close(self) -> None:
        """Close what was opened."""

    def describe(self) -> dict[str, Any]:
        """What the harness must know to reach it: nothing for most."""
        return {}


class Threads:
    """Runs blocking calls side by side."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Run it in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        """Wait for what runs."""
        self._pool.shutdown()


def missing_peer(error: ImportError) -> ConfigurationError:
    """What to do about a peer that is not installed."""
    return ConfigurationError(
        f"{error.name} is not installed",
        hint="pip install 'apiary[bench]' installs the systems to compare with",
    )
