"""The thread of a workflow's code, and how it is ended when it does not end by itself."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import suppress
from typing import Any

from ..authoring.context import running_in
from ..authoring.decorators import Workflow
from .calling import require_storable
from .operations import Abandoned
from .running import RunContext

__all__ = ["run_code"]

log = logging.getLogger(__name__)

Ended = tuple[str | None, BaseException | None]  # the output as JSON text, or the error

_UNWINDING_S = 1.0  # for code that was told to stop by its next call
_INTERRUPTED_S = 2.0  # for code that was interrupted


async def run_code(workflow: Workflow[..., Any], context: RunContext) -> Ended:
    """Run a workflow's code in a thread until it ends, or its run is given up.

    Code of a run that was given up is unwound by its next call. If it makes none, it is
    interrupted; if it swallows that as well, it is left behind: nothing that it does then counts.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Ended] = loop.create_future()

    def settle(ended: Ended) -> None:
        if not done.done():
            done.set_result(ended)

    def work() -> None:
        ended: Ended = None, Abandoned("interrupted")
        try:
            ended = _run(workflow, context)
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, ended)

    job = context.services.workers.run(f"run {context.run.run_id}", work)
    try:
        either: list[asyncio.Future[Any]] = [done, context.stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if done.done() or await _ends_within(done, _UNWINDING_S):
            return done.result()
        job.interrupt(Abandoned)
        if await _ends_within(done, _INTERRUPTED_S):
            return done.result()
    except asyncio.CancelledError:
        job.interrupt(Abandoned)
        raise
    context.leave_behind()
    log.warning("code_left_behind run_id=%s: it swallows interruptions", context.run.run_id)
    return None, context.replay.broken or Abandoned("the code did not stop")


async def _ends_within(done: asyncio.Future[Ended], seconds: float) -> bool:
    await asyncio.wait([done], timeout=seconds)
    return done.done()


def _run(workflow: Workflow[..., Any], context: RunContext) -> Ended:
    try:
        kwargs = workflow.signature.decode_arguments(context.run.input)
        with running_in(context):
            result = workflow.body(**kwargs)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
        context.replay.check_complete()
        document = workflow.signature.encode_result(result)
        return require_storable(document, f"the result of {workflow.name}"), None
    # Whatever user code raises is the run's outcome, or unwinds it.
    except BaseException as error:  # noqa: BLE001
        return None, context.replay.broken or error
