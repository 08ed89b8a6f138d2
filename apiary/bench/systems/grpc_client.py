"""Apiary as clients see it: over gRPC, with the server in a process of its own."""

from __future__ import annotations

from typing import Any

from ...client.aio import AsyncClient
from ...client.records import StartOptions
from ..workloads import Request
from .base import Adapter
from .engine import APPLICATION

__all__ = ["GrpcClient"]


class GrpcClient(Adapter):
    """A client; ``open`` takes the server's address."""

    def __init__(self, *, executor_only: bool = False) -> None:
        self._options = StartOptions(executor_only=executor_only)

    async def open(self, url: str) -> None:
        self._client = AsyncClient(url)

    async def close(self) -> None:
        await self._client.close()

    async def call(self, request: Request) -> Any:
        if not request.is_workflow:
            result = await self._client.invoke_document(
                request.target, request.arguments, application=APPLICATION
            )
            return result.output
        handle = await self._client.start_document(
            request.target,
            request.arguments,
            application=APPLICATION,
            options=self._options,
        )
        return await handle.result()
