import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeployRequest(_message.Message):
    __slots__ = ("bundle", "check_only")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    CHECK_ONLY_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    check_only: bool
    def __init__(self, bundle: _Optional[str] = ..., check_only: bool = ...) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ("application",)
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    application: str
    def __init__(self, application: _Optional[str] = ...) -> None: ...

class DeployResponse(_message.Message):
    __slots__ = ("application", "deployment", "previous", "changed", "functions", "workflows", "scripts", "replay")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    WORKFLOWS_FIELD_NUMBER: _ClassVar[int]
    SCRIPTS_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    application: str
    deployment: str
    previous: str
    changed: bool
    functions: _containers.RepeatedScalarFieldContainer[str]
    workflows: _containers.RepeatedScalarFieldContainer[str]
    scripts: _containers.RepeatedScalarFieldContainer[str]
    replay: ReplayReport
    def __init__(self, application: _Optional[str] = ..., deployment: _Optional[str] = ..., previous: _Optional[str] = ..., changed: bool = ..., functions: _Optional[_Iterable[str]] = ..., workflows: _Optional[_Iterable[str]] = ..., scripts: _Optional[_Iterable[str]] = ..., replay: _Optional[_Union[ReplayReport, _Mapping]] = ...) -> None: ...

class ReplayReport(_message.Message):
    __slots__ = ("live_runs", "checked", "problems")
    LIVE_RUNS_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    live_runs: int
    checked: int
    problems: _containers.RepeatedCompositeFieldContainer[ReplayProblem]
    def __init__(self, live_runs: _Optional[int] = ..., checked: _Optional[int] = ..., problems: _Optional[_Iterable[_Union[ReplayProblem, _Mapping]]] = ...) -> None: ...

class ReplayProblem(_message.Message):
    __slots__ = ("run_id", "workflow", "reason", "recorded", "now")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    workflow: str
    reason: str
    recorded: str
    now: str
    def __init__(self, run_id: _Optional[str] = ..., workflow: _Optional[str] = ..., reason: _Optional[str] = ..., recorded: _Optional[str] = ..., now: _Optional[str] = ...) -> None: ...

class ListFunctionsRequest(_message.Message):
    __slots__ = ("application",)
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    application: str
    def __init__(self, application: _Optional[str] = ...) -> None: ...

class ListFunctionsResponse(_message.Message):
    __slots__ = ("functions",)
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    functions: _containers.RepeatedCompositeFieldContainer[FunctionDescription]
    def __init__(self, functions: _Optional[_Iterable[_Union[FunctionDescription, _Mapping]]] = ...) -> None: ...

class DescribeFunctionRequest(_message.Message):
    __slots__ = ("application", "name")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    application: str
    name: str
    def __init__(self, application: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class FunctionDescription(_message.Message):
    __slots__ = ("application", "name", "deployment", "doc", "signature", "isolation", "timeout", "read_only", "dynamic", "reads", "writes", "file", "line")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    application: str
    name: str
    deployment: str
    doc: str
    signature: str
    isolation: str
    timeout: _duration_pb2.Duration
    read_only: bool
    dynamic: bool
    reads: _containers.RepeatedScalarFieldContainer[str]
    writes: _containers.RepeatedScalarFieldContainer[str]
    file: str
    line: int
    def __init__(self, application: _Optional[str] = ..., name: _Optional[str] = ..., deployment: _Optional[str] = ..., doc: _Optional[str] = ..., signature: _Optional[str] = ..., isolation: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., read_only: bool = ..., dynamic: bool = ..., reads: _Optional[_Iterable[str]] = ..., writes: _Optional[_Iterable[str]] = ..., file: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class InvokeRequest(_message.Message):
    __slots__ = ("application", "function", "input", "run_id", "fresh", "timeout")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    application: str
    function: str
    input: str
    run_id: str
    fresh: bool
    timeout: _duration_pb2.Duration
    def __init__(self, application: _Optional[str] = ..., function: _Optional[str] = ..., input: _Optional[str] = ..., run_id: _Optional[str] = ..., fresh: bool = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class InvokeResponse(_message.Message):
    __slots__ = ("run_id", "output", "deployment", "xid", "replayed")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    XID_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    output: str
    deployment: str
    xid: str
    replayed: bool
    def __init__(self, run_id: _Optional[str] = ..., output: _Optional[str] = ..., deployment: _Optional[str] = ..., xid: _Optional[str] = ..., replayed: bool = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "kind", "name", "application", "deployment", "principal", "status", "input", "output", "error", "started_at", "finished_at", "trace", "operations", "created_at", "queue", "executor", "parent_run_id", "forked_from", "deadline", "progress")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    kind: str
    name: str
    application: str
    deployment: str
    principal: str
    status: str
    input: str
    output: str
    error: str
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    trace: str
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    created_at: _timestamp_pb2.Timestamp
    queue: str
    executor: str
    parent_run_id: str
    forked_from: str
    deadline: _timestamp_pb2.Timestamp
    progress: Progress
    def __init__(self, run_id: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., application: _Optional[str] = ..., deployment: _Optional[str] = ..., principal: _Optional[str] = ..., status: _Optional[str] = ..., input: _Optional[str] = ..., output: _Optional[str] = ..., error: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., trace: _Optional[str] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., queue: _Optional[str] = ..., executor: _Optional[str] = ..., parent_run_id: _Optional[str] = ..., forked_from: _Optional[str] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("seq", "kind", "name", "status", "attempt", "output", "error", "started_at", "finished_at", "xid", "log")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    XID_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    seq: int
    kind: str
    name: str
    status: str
    attempt: int
    output: str
    error: str
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    xid: str
    log: str
    def __init__(self, seq: _Optional[int] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., status: _Optional[str] = ..., attempt: _Optional[int] = ..., output: _Optional[str] = ..., error: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., xid: _Optional[str] = ..., log: _Optional[str] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("application", "name", "statuses", "since", "until", "run_id_prefix", "page_size", "page_token", "kind")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    application: str
    name: str
    statuses: _containers.RepeatedScalarFieldContainer[str]
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    run_id_prefix: str
    page_size: int
    page_token: str
    kind: str
    def __init__(self, application: _Optional[str] = ..., name: _Optional[str] = ..., statuses: _Optional[_Iterable[str]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., run_id_prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("sql", "timeout")
    SQL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    sql: str
    timeout: _duration_pb2.Duration
    def __init__(self, sql: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("columns", "rows")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    rows: _containers.RepeatedCompositeFieldContainer[QueryRow]
    def __init__(self, columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[QueryRow, _Mapping]]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class QueryRow(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class TrimLogRequest(_message.Message):
    __slots__ = ("before", "older_than", "dry_run", "timeout")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    before: _timestamp_pb2.Timestamp
    older_than: _duration_pb2.Duration
    dry_run: bool
    timeout: _duration_pb2.Duration
    def __init__(self, before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., older_than: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dry_run: bool = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TrimLogResponse(_message.Message):
    __slots__ = ("before", "invocations", "attempts", "row_changes")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    INVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ROW_CHANGES_FIELD_NUMBER: _ClassVar[int]
    before: _timestamp_pb2.Timestamp
    invocations: int
    attempts: int
    row_changes: int
    def __init__(self, before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., invocations: _Optional[int] = ..., attempts: _Optional[int] = ..., row_changes: _Optional[int] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("document",)
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    document: str
    def __init__(self, document: _Optional[str] = ...) -> None: ...

class StartRunRequest(_message.Message):
    __slots__ = ("application", "workflow", "input", "run_id", "queue", "priority", "queue_key", "deduplication", "start_at", "timeout", "deployment", "executor_only")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_KEY_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ONLY_FIELD_NUMBER: _ClassVar[int]
    application: str
    workflow: str
    input: str
    run_id: str
    queue: str
    priority: int
    queue_key: str
    deduplication: str
    start_at: _timestamp_pb2.Timestamp
    timeout: _duration_pb2.Duration
    deployment: str
    executor_only: bool
    def __init__(self, application: _Optional[str] = ..., workflow: _Optional[str] = ..., input: _Optional[str] = ..., run_id: _Optional[str] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., queue_key: _Optional[str] = ..., deduplication: _Optional[str] = ..., start_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., deployment: _Optional[str] = ..., executor_only: bool = ...) -> None: ...

class StartRunResponse(_message.Message):
    __slots__ = ("run", "created")
    RUN_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    run: Run
    created: bool
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., created: bool = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run_id", "settled_only")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SETTLED_ONLY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    settled_only: bool
    def __init__(self, run_id: _Optional[str] = ..., settled_only: bool = ...) -> None: ...

class RunEvent(_message.Message):
    __slots__ = ("run", "operation", "progress")
    RUN_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    run: Run
    operation: Operation
    progress: Progress
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., operation: _Optional[_Union[Operation, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("done", "total", "message")
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    done: float
    total: float
    message: str
    def __init__(self, done: _Optional[float] = ..., total: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("run_id", "cascade", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CASCADE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    cascade: bool
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., cascade: bool = ..., reason: _Optional[str] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cancelled: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeRunRequest(_message.Message):
    __slots__ = ("run_id", "timeout")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    timeout: _duration_pb2.Duration
    def __init__(self, run_id: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RestartRunRequest(_message.Message):
    __slots__ = ("run_id", "new_run_id", "deployment")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    new_run_id: str
    deployment: str
    def __init__(self, run_id: _Optional[str] = ..., new_run_id: _Optional[str] = ..., deployment: _Optional[str] = ...) -> None: ...

class ForkRunRequest(_message.Message):
    __slots__ = ("run_id", "from_seq", "new_run_id", "deployment", "replaced_output")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
    NEW_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    REPLACED_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    from_seq: int
    new_run_id: str
    deployment: str
    replaced_output: str
    def __init__(self, run_id: _Optional[str] = ..., from_seq: _Optional[int] = ..., new_run_id: _Optional[str] = ..., deployment: _Optional[str] = ..., replaced_output: _Optional[str] = ...) -> None: ...

class DeleteRunsRequest(_message.Message):
    __slots__ = ("run_ids", "ended_before")
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    ENDED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[str]
    ended_before: _timestamp_pb2.Timestamp
    def __init__(self, run_ids: _Optional[_Iterable[str]] = ..., ended_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class DeleteRunsResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: int
    def __init__(self, deleted: _Optional[int] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("run_id", "topic", "message", "idempotency_key")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    topic: str
    message: str
    idempotency_key: str
    def __init__(self, run_id: _Optional[str] = ..., topic: _Optional[str] = ..., message: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetEventRequest(_message.Message):
    __slots__ = ("run_id", "key", "timeout")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    key: str
    timeout: _duration_pb2.Duration
    def __init__(self, run_id: _Optional[str] = ..., key: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetEventResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class ReadStreamRequest(_message.Message):
    __slots__ = ("run_id", "key", "from_offset", "follow")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    key: str
    from_offset: int
    follow: bool
    def __init__(self, run_id: _Optional[str] = ..., key: _Optional[str] = ..., from_offset: _Optional[int] = ..., follow: bool = ...) -> None: ...

class StreamValue(_message.Message):
    __slots__ = ("offset", "value")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    value: str
    def __init__(self, offset: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class ListWorkflowsRequest(_message.Message):
    __slots__ = ("application",)
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    application: str
    def __init__(self, application: _Optional[str] = ...) -> None: ...

class ListWorkflowsResponse(_message.Message):
    __slots__ = ("workflows",)
    WORKFLOWS_FIELD_NUMBER: _ClassVar[int]
    workflows: _containers.RepeatedCompositeFieldContainer[WorkflowDescription]
    def __init__(self, workflows: _Optional[_Iterable[_Union[WorkflowDescription, _Mapping]]] = ...) -> None: ...

class ExplainWorkflowRequest(_message.Message):
    __slots__ = ("application", "name")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    application: str
    name: str
    def __init__(self, application: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class WorkflowDescription(_message.Message):
    __slots__ = ("application", "name", "deployment", "doc", "signature", "in_database", "reasons", "file", "line")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    IN_DATABASE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    application: str
    name: str
    deployment: str
    doc: str
    signature: str
    in_database: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    file: str
    line: int
    def __init__(self, application: _Optional[str] = ..., name: _Optional[str] = ..., deployment: _Optional[str] = ..., doc: _Optional[str] = ..., signature: _Optional[str] = ..., in_database: bool = ..., reasons: _Optional[_Iterable[str]] = ..., file: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "concurrency", "executor_concurrency", "key_concurrency", "rate_limit", "rate_period", "paused", "waiting", "active")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    KEY_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RATE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    concurrency: int
    executor_concurrency: int
    key_concurrency: int
    rate_limit: int
    rate_period: _duration_pb2.Duration
    paused: bool
    waiting: int
    active: int
    def __init__(self, name: _Optional[str] = ..., concurrency: _Optional[int] = ..., executor_concurrency: _Optional[int] = ..., key_concurrency: _Optional[int] = ..., rate_limit: _Optional[int] = ..., rate_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., paused: bool = ..., waiting: _Optional[int] = ..., active: _Optional[int] = ...) -> None: ...

class PauseQueueRequest(_message.Message):
    __slots__ = ("name", "paused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    paused: bool
    def __init__(self, name: _Optional[str] = ..., paused: bool = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("name", "application", "workflow", "input", "cron", "zone", "dst_policy", "every", "anchor", "missed", "queue", "paused", "next")
    NAME_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    DST_POLICY_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    application: str
    workflow: str
    input: str
    cron: str
    zone: str
    dst_policy: str
    every: _duration_pb2.Duration
    anchor: _timestamp_pb2.Timestamp
    missed: str
    queue: str
    paused: bool
    next: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    def __init__(self, name: _Optional[str] = ..., application: _Optional[str] = ..., workflow: _Optional[str] = ..., input: _Optional[str] = ..., cron: _Optional[str] = ..., zone: _Optional[str] = ..., dst_policy: _Optional[str] = ..., every: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., anchor: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., missed: _Optional[str] = ..., queue: _Optional[str] = ..., paused: bool = ..., next: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ...) -> None: ...

class PauseScheduleRequest(_message.Message):
    __slots__ = ("name", "paused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    paused: bool
    def __init__(self, name: _Optional[str] = ..., paused: bool = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("fires",)
    FIRES_FIELD_NUMBER: _ClassVar[int]
    fires: int
    def __init__(self, fires: _Optional[int] = ...) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("schedules",)
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ...) -> None: ...

class DeleteScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteScheduleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackfillScheduleRequest(_message.Message):
    __slots__ = ("name", "since", "until")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class BackfillScheduleResponse(_message.Message):
    __slots__ = ("run_ids",)
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListDeploymentsRequest(_message.Message):
    __slots__ = ("application",)
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    application: str
    def __init__(self, application: _Optional[str] = ...) -> None: ...

class ListDeploymentsResponse(_message.Message):
    __slots__ = ("deployments",)
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    deployments: _containers.RepeatedCompositeFieldContainer[Deployment]
    def __init__(self, deployments: _Optional[_Iterable[_Union[Deployment, _Mapping]]] = ...) -> None: ...

class Deployment(_message.Message):
    __slots__ = ("id", "application", "current", "created_at", "created_by", "live_runs")
    ID_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    LIVE_RUNS_FIELD_NUMBER: _ClassVar[int]
    id: str
    application: str
    current: bool
    created_at: _timestamp_pb2.Timestamp
    created_by: str
    live_runs: int
    def __init__(self, id: _Optional[str] = ..., application: _Optional[str] = ..., current: bool = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_by: _Optional[str] = ..., live_runs: _Optional[int] = ...) -> None: ...

class RemoveDeploymentRequest(_message.Message):
    __slots__ = ("application", "deployment")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    application: str
    deployment: str
    def __init__(self, application: _Optional[str] = ..., deployment: _Optional[str] = ...) -> None: ...

class RemoveDeploymentResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
