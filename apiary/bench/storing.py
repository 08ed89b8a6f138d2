"""Keeping a result in Apiary: `bench.store` is a function like any other."""

from __future__ import annotations

import json
from typing import Any

from ..errors import ExecutionError
from .systems.base import Adapter
from .workloads import Request

__all__ = ["store"]


async def store(adapter: Adapter, url: str, document: dict[str, Any]) -> None:
    """Store a result, and read it back: ExecutionError when it is not what was stored."""
    await adapter.open(url)
    try:
        result_id = document["result_id"]
        arguments = {
            "result_id": result_id,
            "commit": document["machine"]["commit"],
            "document": document,
        }
        await adapter.call(Request(target="bench.store", arguments=arguments))
        found = await adapter.call(
            Request(target="bench.stored", arguments={"result_id": result_id})
        )
    finally:
        await adapter.close()
    if json.dumps(found, sort_keys=True) != json.dumps(document, sort_keys=True):
        raise ExecutionError(f"result {result_id} was read back otherwise than it was stored")
