-- Workflows: runs, what they wait for, queues and schedules.
--
-- `apiary.run` is the state machine. One column, ready_at, says when an executor may take a run, in
-- whatever state it is: QUEUED: now; SCHEDULED: its start; WAITING: its timer, or never until
-- something wakes it; RUNNING: when its lease ends. So claiming is one condition, and a dead
-- executor's runs become claimable by time alone. `epoch` counts the claims: a state change by an
-- executor names the epoch that it holds, and one that came back from the dead changes nothing.
--
-- The transitions are rows of apiary.transition; a trigger refuses any other. Lock order: runs that
-- are awaited (shared), then the run's own row, then runs that wait for it.

SET LOCAL ROLE apiary_owner;

CREATE TABLE apiary.transition (
    from_status text NOT NULL,
    to_status   text NOT NULL,
    event       text NOT NULL,              -- the function that makes it
    PRIMARY KEY (from_status, to_status, event)
);
INSERT INTO apiary.transition (from_status, to_status, event) VALUES
    ('QUEUED',    'RUNNING',   'claim'),
    ('SCHEDULED', 'RUNNING',   'claim'),
    ('WAITING',   'RUNNING',   'claim'),        -- its timer is due
    ('RUNNING',   'RUNNING',   'adopt'),        -- the lease had ended
    ('RUNNING',   'WAITING',   'park'),
    ('RUNNING',   'QUEUED',    'release'),      -- drained, or left the database
    ('WAITING',   'QUEUED',    'wake'),
    ('RUNNING',   'SUCCEEDED', 'finish'),
    ('RUNNING',   'FAILED',    'finish'),
    ('RUNNING',   'CANCELLED', 'finish'),       -- the workflow itself let a cancellation through
    ('RUNNING',   'STUCK',     'give_up'),      -- adopted too often
    ('QUEUED',    'CANCELLED', 'cancel'),
    ('SCHEDULED', 'CANCELLED', 'cancel'),
    ('WAITING',   'CANCELLED', 'cancel'),
    ('RUNNING',   'CANCELLED', 'cancel'),
    ('STUCK',     'CANCELLED', 'cancel'),
    ('QUEUED',    'TIMED_OUT', 'time_out'),
    ('SCHEDULED', 'TIMED_OUT', 'time_out'),
    ('WAITING',   'TIMED_OUT', 'time_out'),
    ('RUNNING',   'TIMED_OUT', 'time_out'),
    ('STUCK',     'QUEUED',    'resume'),
    ('FAILED',    'QUEUED',    'resume'),
    ('CANCELLED', 'QUEUED',    'resume'),
    ('TIMED_OUT', 'QUEUED',    'resume');

CREATE TABLE apiary.queue (
    name                text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
    concurrency         integer CHECK (concurrency > 0),            -- runs at once; NULL: no limit
    executor_concurrency integer CHECK (executor_concurrency > 0),  -- of them in one executor
    key_concurrency     integer CHECK (key_concurrency > 0),        -- of them with the same key
    rate_limit          integer CHECK (rate_limit > 0),             -- starts per rate_period
    rate_period         interval CHECK (rate_period > interval '0'),
    paused              boolean NOT NULL DEFAULT false,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((rate_limit IS NULL) = (rate_period IS NULL))
);

CREATE TABLE apiary.run (
    run_id          text PRIMARY KEY CHECK (length(run_id) BETWEEN 1 AND 255),
    application     text NOT NULL,
    workflow        text NOT NULL,
    deployment      text NOT NULL,          -- the version that it began with, and keeps
    principal       text NOT NULL,
    status          text NOT NULL CHECK (status IN ('QUEUED', 'SCHEDULED', 'RUNNING', 'WAITING',
                        'SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMED_OUT', 'STUCK')),
    in_database     boolean NOT NULL,       -- where it runs: one CALL, or an executor
    input           json NOT NULL,
    input_digest    text NOT NULL,
    output          json,
    error           json,
    queue           text,                   -- NULL: none, no limits; ended runs may outlive it
    priority        integer NOT NULL DEFAULT 0,     -- lower goes first
    queue_key       text,                   -- for key_concurrency
    deduplication   text,                   -- at most one unfinished run of a queue (or of none) has it
    ready_at        timestamptz,            -- when an executor may take it; NULL: not by itself
    waiting_for     json,                   -- what it was parked for last: see apiary.park_run
    waiting_left    integer,                -- how many of those things have still to come about
    waiting_failures integer,               -- of awaited runs: how many more may fail; NULL: any
    executor        text,                   -- who holds it, or held it last
    epoch           integer NOT NULL DEFAULT 0,
    adoptions       integer NOT NULL DEFAULT 0,     -- claims after a lease had ended
    max_adoptions   integer NOT NULL DEFAULT 50,
    deadline        timestamptz,            -- then it is TIMED_OUT; children inherit it
    parent_run_id   text,
    parent_seq      integer,
    forked_from     text,
    seed            text,                   -- of its random numbers; NULL: its id
    progress        json,                   -- {done, total, message, at}
    calls           integer,                -- operations that it went through, recorded or not
    unrecorded      json,                   -- read-only calls at the end, which nothing depended on
    trace           text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at      timestamptz,            -- first claim since it was started or resumed
    finished_at     timestamptz,
    deleting        boolean NOT NULL DEFAULT false, -- part of it is gone: it cannot be resumed
    CHECK ((finished_at IS NOT NULL) = (status IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMED_OUT'))),
    CHECK (status NOT IN ('QUEUED', 'SCHEDULED', 'RUNNING') OR ready_at IS NOT NULL),
    CHECK (finished_at IS NULL OR ready_at IS NULL)
);
-- What claiming scans: only runs that could move.
CREATE INDEX run_claim_idx ON apiary.run (queue, priority, ready_at) WHERE ready_at IS NOT NULL AND started_at IS NULL;
CREATE INDEX run_resume_idx ON apiary.run (ready_at) WHERE ready_at IS NOT NULL AND started_at IS NOT NULL;
CREATE INDEX run_ready_at_idx ON apiary.run (ready_at) WHERE ready_at IS NOT NULL;
-- The places taken in a queue: a run holds its place from its start to its end.
CREATE INDEX run_active_idx ON apiary.run (queue, queue_key) WHERE started_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX run_started_idx ON apiary.run (queue, started_at) WHERE queue IS NOT NULL;
-- Runs without a queue are one group, too (no queue has an empty name).
CREATE UNIQUE INDEX run_deduplication_idx ON apiary.run ((coalesce(queue, '')), deduplication)
    WHERE finished_at IS NULL AND deduplication IS NOT NULL;
CREATE INDEX run_parent_idx ON apiary.run (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX run_deadline_idx ON apiary.run (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX run_finished_at_idx ON apiary.run (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX run_created_at_idx ON apiary.run (created_at, run_id);
CREATE INDEX run_deployment_idx ON apiary.run (deployment) WHERE finished_at IS NULL;

-- Messages sent to runs. A message is taken by exactly one recv operation of its run.
CREATE TABLE apiary.mailbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id          text NOT NULL,
    topic           text NOT NULL,
    message         json NOT NULL,
    idempotency_key text UNIQUE,            -- of the sender: a repeated send changes nothing
    sent_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_by_seq    integer                 -- the recv that took it
);
CREATE INDEX mailbox_run_id_idx ON apiary.mailbox (run_id, topic, id) WHERE taken_by_seq IS NULL;

-- What a run publishes under a key; the last value counts.
CREATE TABLE apiary.event (
    run_id          text NOT NULL,
    key             text NOT NULL,
    value           json NOT NULL,
    set_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, key)
);

-- Runs that wait for another run: its end, or an event of it.
CREATE TABLE apiary.waiter (
    awaited_run_id  text NOT NULL,
    event_key       text NOT NULL DEFAULT '',   -- '': the run's end
    run_id          text NOT NULL,
    PRIMARY KEY (awaited_run_id, event_key, run_id)
);
CREATE INDEX waiter_run_id_idx ON apiary.waiter (run_id);

CREATE TABLE apiary.stream (
    run_id          text NOT NULL,
    key             text NOT NULL,
    "offset"        bigint NOT NULL,        -- 0, 1, ... without gaps
    value           json NOT NULL,
    seq             integer NOT NULL,       -- the operation that wrote it
    written_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, key, "offset")
);

CREATE TABLE apiary.schedule (
    name            text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
    application     text NOT NULL,
    workflow        text NOT NULL,
    input           json NOT NULL,
    principal       text NOT NULL,
    cron            text,
    zone            text NOT NULL DEFAULT 'UTC',
    dst_policy      text NOT NULL DEFAULT 'once' CHECK (dst_policy IN ('once', 'skip', 'all')),
    every           interval CHECK (every >= interval '1 second'),
    anchor          timestamptz NOT NULL DEFAULT clock_timestamp(),  -- of a fixed interval
    missed          text NOT NULL DEFAULT 'one' CHECK (missed IN ('skip', 'one', 'all')),
    queue           text REFERENCES apiary.queue,
    paused          boolean NOT NULL DEFAULT false,
    next_at         timestamptz NOT NULL,   -- the next nominal slot
    tzdata          text NOT NULL,          -- version with which next_at was computed
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((cron IS NULL) <> (every IS NULL))
);
CREATE INDEX schedule_next_at_idx ON apiary.schedule (next_at) WHERE NOT paused;

-- Which slots of which schedule fired, as which run.
CREATE TABLE apiary.fire (
    schedule        text NOT NULL,
    slot            timestamptz NOT NULL,
    run_id          text NOT NULL,
    fired_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    tzdata          text NOT NULL,
    PRIMARY KEY (schedule, slot)
);

-- Executors, for people to see. Leases are on the runs, not here: losing this row loses no run.
CREATE TABLE apiary.executor (
    name            text PRIMARY KEY,
    host            text NOT NULL,
    pid             integer NOT NULL,
    version         text NOT NULL,
    applications    text[],                 -- whose runs it takes; NULL: all
    queues          text[],                 -- from which queues it starts runs; NULL: all, and none
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at         timestamptz NOT NULL DEFAULT clock_timestamp()   -- told every 10 s or more often
);
