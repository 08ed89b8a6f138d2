"""HTTP/1.1 over one kept connection: what calling Restate's ingress takes, and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Self

from ..errors import ConfigurationError

__all__ = ["HttpConnection"]


class HttpConnection:
    """One connection; one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def open(self) -> Self:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def post(self, path: str, document: Any, headers: Mapping[str, str]) -> Any:
        """Post a JSON document and return the answer's; ConfigurationError for a refusal."""
        body = json.dumps(document).encode()
        lines = [
            f"POST {path} HTTP/1.1",
            f"host: {self._host}:{self._port}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self._writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        status, answered = await self._head()
        text = await self._body(answered)
        if not 200 <= status < 300:
            raise ConfigurationError(f"POST {path} was answered by {status}: {text.decode()}")
        return json.loads(text) if text else None

    async def _head(self) -> tuple[int, dict[str, str]]:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        status = int(lines[0].split()[1])
        pairs = (line.partition(":") for line in lines[1:] if line)
        return status, {name.lower(): value.strip() for name, _, value in pairs}

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length", 0)))
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)
