"""The client of a server: `Client` for ordinary code, `AsyncClient` for asyncio."""

from .aio import AsyncClient
from .aio_workflows import AsyncRunHandle
from .records import Queue, Schedule, StartOptions
from .sync import Client
from .workflows import RunHandle

__all__ = [
    "AsyncClient",
    "AsyncRunHandle",
    "Client",
    "Queue",
    "RunHandle",
    "Schedule",
    "StartOptions",
]
