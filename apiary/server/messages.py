"""What the platform knows, as messages of the interface."""

from __future__ import annotations

import json
from datetime import datetime

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from ..authoring.values import dumps
from ..engine.base import Outcome
from ..engine.catalogue import FunctionRow, OperationRow, RunRow
from ..engine.deploying import Deployed
from ..engine.querying import Batch
from ..engine.trimming import Trimmed
from ..proto.apiary.v1 import apiary_pb2 as pb

__all__ = [
    "batch_message",
    "deployed_message",
    "function_message",
    "operation_message",
    "outcome_message",
    "progress_message",
    "run_message",
    "timestamp",
    "trimmed_message",
]


def outcome_message(run_id: str, outcome: Outcome) -> pb.InvokeResponse:
    """The answer to an invocation that has a result."""
    return pb.InvokeResponse(
        run_id=run_id,
        output=dumps(outcome.output),
        deployment=outcome.deployment,
        xid=outcome.xid or "",
        replayed=outcome.replayed,
    )


def deployed_message(deployed: Deployed) -> pb.DeployResponse:
    """The answer to a deploy or rollback."""
    return pb.DeployResponse(
        application=deployed.application,
        deployment=deployed.deployment,
        previous=deployed.previous or "",
        changed=deployed.changed,
        functions=deployed.functions,
        workflows=deployed.workflows,
        scripts=deployed.scripts,
    )


def function_message(row: FunctionRow) -> pb.FunctionDescription:
    """A function."""
    timeout = None
    if row.timeout_ms is not None:
        timeout = Duration(seconds=row.timeout_ms // 1000, nanos=row.timeout_ms % 1000 * 1_000_000)
    return pb.FunctionDescription(
        application=row.application,
        name=row.name,
        deployment=row.deployment,
        doc=row.doc,
        signature=row.signature,
        isolation=row.isolation,
        timeout=timeout,
        read_only=row.read_only,
        dynamic=row.dynamic,
        reads=row.reads,
        writes=row.writes,
        file=row.file,
        line=row.line,
    )


def run_message(row: RunRow) -> pb.Run:
    """A run."""
    return pb.Run(
        run_id=row.run_id,
        kind=row.kind,
        name=row.name,
        application=row.application,
        deployment=row.deployment or "",
        principal=row.principal,
        status=row.status,
        input=row.input or "",
        output=row.output or "",
        error=row.error or "",
        created_at=timestamp(row.created_at),
        started_at=timestamp(row.started_at),
        finished_at=timestamp(row.finished_at),
        trace=row.trace or "",
        queue=row.queue or "",
        executor=row.executor or "",
        parent_run_id=row.parent_run_id or "",
        forked_from=row.forked_from or "",
        deadline=timestamp(row.deadline),
        progress=progress_message(row.progress),
        operations=[operation_message(operation) for operation in row.operations],
    )


def progress_message(text: str | None) -> pb.Progress | None:
    """How far a run is, from the JSON text in its row."""
    if text is None:
        return None
    shown = json.loads(text)
    return pb.Progress(
        done=shown["done"], total=shown.get("total"), message=shown.get("message") or ""
    )


def operation_message(row: OperationRow) -> pb.Operation:
    """One recorded call of a run, or one attempt."""
    return pb.Operation(
        seq=row.seq,
        kind=row.kind,
        name=row.name,
        status=row.status,
        attempt=row.attempt,
        output=row.output or "",
        error=row.error or "",
        started_at=timestamp(row.started_at),
        finished_at=timestamp(row.finished_at),
        xid=row.xid or "",
        log=row.log or "",
    )


def batch_message(batch: Batch) -> pb.QueryResponse:
    """Some rows of a query."""
    return pb.QueryResponse(
        columns=[pb.Column(name=column.name, type=column.type) for column in batch.columns],
        rows=[pb.QueryRow(values=row) for row in batch.rows],
    )


def trimmed_message(before: datetime, so_far: Trimmed) -> pb.TrimLogResponse:
    """What has gone of the log so far, or would go."""
    return pb.TrimLogResponse(
        before=timestamp(before),
        invocations=so_far.invocations,
        attempts=so_far.attempts,
        row_changes=so_far.row_changes,
    )


def timestamp(moment: datetime | None) -> Timestamp | None:
    """A moment, for a field that may be left out."""
    if moment is None:
        return None
    found = Timestamp()
    found.FromDatetime(moment)
    return found
