"""What a workflow asks of the platform: time, sleep, messages, events, streams.

Each is an operation of the run. One that waits either finds what it waits for and records that, or
suspends the run: its code is unwound, and run again when the database says that it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from ..authoring.failures import encode_exception
from ..authoring.values import canonical, codec_for, digest
from ..errors import ApiaryError, BadArgument, NotFound, UsageError, WaitTimedOut
from .crashpoints import crash_point
from .operations import Suspended, operation_row
from .recording import as_record

if TYPE_CHECKING:
    from .running import RunContext

__all__ = ["Primitives"]

_any = codec_for(Any)


class Primitives:
    """The primitives of one run, by name."""

    def __init__(self, context: RunContext, report: Callable[[dict[str, Any]], None]) -> None:
        self._context = context
        self._report = report
        self._named: dict[str, Callable[..., Any]] = {
            "now": self._now,
            "random": context.replay.random,
            "uuid4": context.replay.uuid4,
            "run_id": lambda: context.run.run_id,
            "sleep": self._sleep_for,
            "sleep_until": self._sleep_until,
            "send": self._send,
            "recv": self._recv,
            "set_event": self._set_event,
            "get_event": self._get_event,
            "write_stream": self._write_stream,
            "progress": self._progress,
            "gather": context.gather,
        }

    def perform(self, name: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
        """Perform one, in the code's thread."""
        primitive = self._named.get(name)
        if primitive is None:
            raise UsageError(f"{name}() is not for a workflow's body")
        return primitive(*args, **options)

    def _now(self) -> datetime:
        """The time, recorded when something depends on it."""
        context = self._context
        seq = context.replay.next_seq()
        record = context.replay.match(seq, "now", "now", None)
        if record is None:
            now = _any.encode(context.database_now(), "now")
            row = operation_row(seq, "now", "now", output=now, read_only=True)
            context.recorder.defer(row)
            record = as_record(row)
        return cast(datetime, context.replay.value(record, _any.decode))

    # Sleep.

    def _sleep_for(self, seconds: float) -> None:
        if not 0 <= seconds < float("inf"):
            raise BadArgument(f"sleep takes seconds from 0 on, not {seconds!r}", path="seconds")
        self._sleep("sleep", lambda: self._context.database_now() + timedelta(seconds=seconds))

    def _sleep_until(self, when: datetime) -> None:
        if when.tzinfo is None:
            raise BadArgument("sleep_until takes an aware datetime", path="when")
        self._sleep("sleep_until", lambda: when)

    def _sleep(self, name: str, until: Callable[[], datetime]) -> None:
        context = self._context
        seq = context.replay.next_seq()
        record = context.replay.match(seq, "sleep", name, None)
        operations: tuple[dict[str, Any], ...] = ()
        if record is not None:
            wake_at = _any.decode(record.output)
        else:
            wake_at = until()
            operations = (operation_row(seq, "sleep", name, output=_any.encode(wake_at, name)),)
        if context.database_now() < wake_at:
            raise context.suspend(Suspended({"kind": "time", "seq": seq}, wake_at, operations))
        if operations:
            context.record(operations)

    # Messages.

    def _send(self, run_id: str, message: Any, topic: str) -> None:
        context = self._context
        seq = context.replay.next_seq()
        document = {"run_id": run_id, "topic": topic, "message": _any.encode(message, "message")}
        input_digest = digest(canonical(document))
        record = context.replay.match(seq, "send", topic, input_digest)
        if record is None:
            row = operation_row(seq, "send", topic, document=document, input_digest=input_digest)
            try:
                context.record_with(
                    lambda rows: context.services.store.send_from_run(
                        context.run.run_id, context.run.epoch, rows, run_id, topic,
                        document["message"],
                    ),
                    row,
                )  # fmt: skip
            except NotFound as error:  # whom it was for does not exist: that is the outcome
                row["error"] = encode_exception(error)
                context.record([row])
            record = as_record(row)
        context.replay.value(record, lambda _: None)

    def _recv(self, topic: str, timeout_s: float | None) -> Any:
        context = self._context
        seq = context.replay.next_seq()
        record = context.replay.match(seq, "recv", topic, None)
        if record is None:
            row = operation_row(seq, "recv", topic)
            deferred = context.recorder.take()
            taken = None
            try:
                taken = context.wait(
                    context.services.store.take_message(
                        context.run.run_id, context.run.epoch, topic, row, deferred
                    )
                )
            finally:
                if taken is None:
                    context.recorder.put_back(deferred)
            if taken is not None:
                crash_point("message-taken")
            else:
                self._wait_or_time_out(row, {"kind": "message", "topic": topic}, timeout_s)
            record = as_record({**row, "output": taken})
        return context.replay.value(record, lambda output: _any.decode(output["message"]))

    # Events.

    def _set_event(self, key: str, value: Any) -> None:
        context = self._context
        seq = context.replay.next_seq()
        document = {"key": key, "value": _any.encode(value, "value")}
        input_digest = digest(canonical(document))
        if context.replay.match(seq, "set_event", key, input_digest) is None:
            row = operation_row(seq, "set_event", key, document=document, input_digest=input_digest)
            context.record_with(
                lambda rows: context.services.store.set_event(
                    context.run.run_id, context.run.epoch, key, document["value"], rows
                ),
                row,
            )

    def _get_event(self, run_id: str, key: str, timeout_s: float | None) -> Any:
        context = self._context
        seq = context.replay.next_seq()
        document = {"run_id": run_id, "key": key}
        input_digest = digest(canonical(document))
        record = context.replay.match(seq, "get_event", key, input_digest)
        if record is None:
            row = operation_row(seq, "get_event", key, document=document, input_digest=input_digest)
            found = context.wait(context.services.store.event(run_id, key))
            if not found:
                self._wait_or_time_out(row, {"kind": "event", **document}, timeout_s)
            row["output"] = {"value": found[0]}
            context.record([row])
            record = as_record(row)
        return context.replay.value(record, lambda output: _any.decode(output["value"]))

    def _wait_or_time_out(
        self, row: dict[str, Any], waiting_for: dict[str, Any], timeout_s: float | None
    ) -> None:
        """Suspend the run until what it waits for is there; record and raise when it is too late.

        The time runs from the first wait, which the run's row keeps.
        """
        context = self._context
        before = context.run.waiting_for or {}
        until: datetime | None = None
        if before.get("seq") == row["seq"]:
            until = None if before["until"] is None else datetime.fromisoformat(before["until"])
        elif timeout_s is not None:
            until = context.database_now() + timedelta(seconds=timeout_s)
        if until is not None and context.database_now() >= until:
            within = "" if timeout_s is None else f" for {timeout_s:g} s"
            error: ApiaryError = WaitTimedOut(
                f"{row['kind']} {row['name']!r} waited{within} in vain", run_id=context.run.run_id
            )
            row["error"] = encode_exception(error)
            context.record([row])
            raise error
        kept = {"seq": row["seq"], "until": None if until is None else until.isoformat()}
        raise context.suspend(Suspended({**waiting_for, **kept}, until))

    # Streams and progress.

    def _write_stream(self, key: str, value: Any) -> None:
        context = self._context
        seq = context.replay.next_seq()
        document = _any.encode(value, f"stream {key}")
        input_digest = digest(canonical(document))
        if context.replay.match(seq, "write_stream", key, input_digest) is None:
            row = operation_row(seq, "write_stream", key, input_digest=input_digest)
            context.record([row], [{"key": key, "seq": seq, "values": [document]}])

    def _progress(self, done: float, total: float | None, message: str | None) -> None:
        self._report({"done": done, "total": total, "message": message})
