"""The client of a server: `Client` for ordinary code, `AsyncClient` for asyncio."""

from .aio import AsyncClient
from .sync import Client

__all__ = ["AsyncClient", "Client"]
