-- Apiary inside PostgreSQL: the tables.
--
-- A *deployment* is one immutable version of an application: its modules' source, its functions,
-- steps and workflows. An application has one current deployment; old ones stay callable.
--
-- A *run* is named by its run_id, which is also its idempotency key. An *operation* is one recorded
-- call inside a run, numbered seq. `apiary.operation` is the guard and the log entry at once: the
-- row is inserted in the transaction of the function's own effects, so both exist or neither does,
-- and its primary key refuses a second one. A function that is invoked directly is operation 0 of
-- its run. Attempts that did not end in a record (serialization failures, timeouts, cancelled
-- statements) are logged in `apiary.attempt` after the fact.
--
-- *Provenance* is what `provenance.invocation` and `provenance.data_event` show: both are views;
-- the first over operation and attempt, the second over `provenance.write_event`, which statement
-- triggers on the application's tables fill in the transaction of the write, and over the reads
-- that are kept in the operation's own row.
--
-- Nothing on the path of an invocation looks its record up inside the function's transaction: at
-- SERIALIZABLE, looking for an absent key locks a page of the index, and time-ordered run ids put
-- all concurrent runs on one page.
--
-- Roles: apiary_owner owns everything here; apiary_deployer deploys; apiary_runtime is what the
-- server and the executors log in as (it may execute the platform's functions and create nothing);
-- apiary_reader reads the log and the applications' tables. Each application has a role of its own,
-- apiary_app_<name>, which owns its tables and is what its functions run as.

CREATE SCHEMA apiary AUTHORIZATION apiary_owner;
CREATE SCHEMA provenance AUTHORIZATION apiary_owner;
CREATE SCHEMA apiary_app AUTHORIZATION apiary_owner;
COMMENT ON SCHEMA apiary IS 'the platform: deployments, runs, operations';
COMMENT ON SCHEMA provenance IS 'the log: what ran, and which rows it touched';
COMMENT ON SCHEMA apiary_app IS 'one entry function per application, run with its role';

SET LOCAL ROLE apiary_owner;

-- Which of the files here were applied, and which version of the code is installed.
CREATE TABLE apiary.migration (
    name        text PRIMARY KEY,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE apiary.installation (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version     text NOT NULL,              -- of the package that installed it
    checksum    text NOT NULL,              -- of code/ and the runtime
    installed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What runs inside the backend: the runtime and the part of the library that it needs.
CREATE TABLE apiary.runtime_module (
    name        text PRIMARY KEY,           -- dotted, as it is imported
    source      text NOT NULL,
    is_package  boolean NOT NULL,
    bytecode    bytea,                      -- compiled when installed: a new backend starts sooner
    magic       bytea                       -- of the Python that compiled it
);

CREATE TABLE apiary.application (
    name        text PRIMARY KEY,
    role        name NOT NULL,              -- owns its tables, runs its functions
    current     text,                       -- deployment that serves new calls; NULL before the first
    provenance  text NOT NULL DEFAULT 'full' CHECK (provenance IN ('off', 'writes', 'full')),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE apiary.deployment (
    id          text PRIMARY KEY,           -- hash of the content
    application text NOT NULL REFERENCES apiary.application,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by  text NOT NULL               -- principal
);

-- Which deployment served when: rollback goes back along this list.
CREATE TABLE apiary.activation (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    application text NOT NULL REFERENCES apiary.application,
    deployment  text NOT NULL REFERENCES apiary.deployment,
    activated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    activated_by text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('deploy', 'rollback')),
    restores    bigint,                     -- a rollback: the activation that it went back to
    CHECK ((kind = 'rollback') = (restores IS NOT NULL))
);
CREATE INDEX activation_application_idx ON apiary.activation (application, id);

CREATE TABLE apiary.module (
    deployment  text NOT NULL REFERENCES apiary.deployment ON DELETE CASCADE,
    name        text NOT NULL,
    file        text NOT NULL,
    source      text NOT NULL,
    is_package  boolean NOT NULL,
    PRIMARY KEY (deployment, name)
);

CREATE TABLE apiary.function (
    deployment  text NOT NULL REFERENCES apiary.deployment ON DELETE CASCADE,
    name        text NOT NULL,              -- domain.function
    module      text NOT NULL,
    qualname    text NOT NULL,
    file        text NOT NULL,
    line        integer NOT NULL,
    signature   json NOT NULL,
    doc         text NOT NULL,
    isolation   text NOT NULL CHECK (isolation IN ('serializable', 'repeatable read', 'read committed')),
    timeout_ms  integer,                    -- NULL: the server's default
    partition   text,
    read_only   boolean NOT NULL,
    dynamic     boolean NOT NULL,           -- some SQL is not constant: treated as writing everything
    reads       text[] NOT NULL,
    writes      text[] NOT NULL,
    statements  json NOT NULL,              -- [{sql, kind, reads, writes, file, line}]
    PRIMARY KEY (deployment, name)
);

CREATE TABLE apiary.workflow (
    deployment  text NOT NULL REFERENCES apiary.deployment ON DELETE CASCADE,
    name        text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('workflow', 'step')),
    module      text NOT NULL,
    qualname    text NOT NULL,
    file        text NOT NULL,
    line        integer NOT NULL,
    signature   json NOT NULL,
    doc         text NOT NULL,
    in_database boolean NOT NULL,
    reasons     json NOT NULL,              -- why not in the database: [{file, line, reason}]
    options     json NOT NULL,
    PRIMARY KEY (deployment, name)
);

-- Which table scripts of an application were applied. An applied file may not be edited.
CREATE TABLE apiary.table_script (
    application text NOT NULL REFERENCES apiary.application,
    domain      text NOT NULL,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (application, domain, name)
);

-- A domain is a schema, and belongs to one application.
CREATE TABLE apiary.domain (
    name        text PRIMARY KEY,
    application text NOT NULL REFERENCES apiary.application
);

-- The application's tables that have capture triggers, and the columns that name a row of each.
CREATE TABLE apiary.captured_table (
    relation    text PRIMARY KEY,           -- schema.table
    application text NOT NULL REFERENCES apiary.application,
    key_columns text[] NOT NULL             -- empty: the table has no primary key
);

-- No CHECK constraints here and in provenance.write_event: PostgreSQL parses them from their stored text
-- for every statement, which took a tenth of an invocation. One statement of the runtime and one
-- function (apiary.insert_operations) write this table.
CREATE TABLE apiary.operation (
    run_id      text NOT NULL,
    seq         integer NOT NULL,           -- program order; 0 is a direct invocation
    kind        text NOT NULL,              -- function, step, workflow, sleep, recv, ...
    name        text NOT NULL,
    application text NOT NULL,
    deployment  text NOT NULL,
    principal   text NOT NULL,
    status      text NOT NULL,              -- SUCCEEDED, FAILED
    input       json,
    input_digest text,                      -- of the canonical input: equal calls, equal digests
    output      json,
    error       json,                       -- {type, message, code, details, ...}
    attempt     integer NOT NULL DEFAULT 1, -- which try this was
    started_at  timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    xid         xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    isolation   text,
    read_only   boolean NOT NULL DEFAULT false,
    reads       json,                       -- [{statement, parameters, relations, rows, row_count}]
    calls       json,                       -- functions called inside, in the same transaction
    log         text,                       -- what the body printed and logged, bounded
    trace       text,                       -- W3C traceparent
    PRIMARY KEY (run_id, seq)
);
CREATE INDEX operation_xid_idx ON apiary.operation (xid);
CREATE INDEX operation_started_at_idx ON apiary.operation (started_at);

CREATE TABLE apiary.attempt (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id      text NOT NULL,
    seq         integer NOT NULL,
    attempt     integer NOT NULL,
    kind        text NOT NULL,
    name        text NOT NULL,
    application text NOT NULL,
    deployment  text,
    principal   text NOT NULL,
    status      text NOT NULL CHECK (status IN ('RETRIED', 'FAILED', 'TIMED_OUT', 'CANCELLED')),
    error       json NOT NULL,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    log         text,
    trace       text
);
CREATE INDEX attempt_run_id_idx ON apiary.attempt (run_id, seq);
CREATE INDEX attempt_name_started_at_idx ON apiary.attempt (name, started_at);

CREATE TABLE provenance.write_event (
    event_id    bigint GENERATED ALWAYS AS IDENTITY,    -- in the order of writing
    xid         xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    at          timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    relation    text NOT NULL,              -- schema.table
    operation   "char" NOT NULL,            -- I, U, D, T (truncated)
    key         jsonb,                      -- the row's primary key; NULL when the table has none
    new_key     jsonb,                      -- only where an update changed the key itself
    before      jsonb,
    after       jsonb,
    statement   text,
    db_user     text NOT NULL DEFAULT session_user
);
CREATE INDEX write_event_xid_idx ON provenance.write_event (xid);
-- History of a row. A hash index takes keys of any length.
CREATE INDEX write_event_key_idx ON provenance.write_event USING hash (key);
