-- The life of a run: start, claim, park, wake, release, finish. All of it at READ COMMITTED.
--
-- Functions are SECURITY DEFINER and their statements qualified, as in 020_invoke.sql. A function
-- that moves a run checks apiary.transition through the trigger below; one that acts for an executor
-- takes the epoch that the executor holds, and fails with AP004 when that is no longer the run's.

-- The platform's clock. Tests move it by the setting; nothing else reads the time here.
CREATE OR REPLACE FUNCTION apiary.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS $body$
    SELECT pg_catalog.clock_timestamp()
           + coalesce(nullif(pg_catalog.current_setting('apiary.clock_offset', true), '')::interval, '0')
$body$;

-- Whether a run may go from one status to another: the rows of apiary.transition as one expression,
-- which costs each change of a run less than looking there.
DO $body$
BEGIN
    EXECUTE format($function$
        CREATE FUNCTION apiary.may_go(p_from text, p_to text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
        $expression$SELECT p_from || ' ' || p_to IN (%s)$expression$
    $function$, (SELECT string_agg(DISTINCT quote_literal(from_status || ' ' || to_status), ', ')
                   FROM apiary.transition));
END
$body$;

-- What holds of every run. A trigger, as PostgreSQL parses CHECK constraints anew for every statement.
CREATE OR REPLACE FUNCTION apiary.check_run() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.status <> OLD.status AND NOT apiary.may_go(OLD.status, NEW.status) THEN
        RAISE EXCEPTION 'a run cannot go from % to %', OLD.status, NEW.status
            USING ERRCODE = 'AP005', DETAIL = NEW.run_id;
    END IF;
    IF pg_catalog.length(NEW.run_id) NOT BETWEEN 1 AND 255
       OR NEW.finished_at IS NOT NULL AND NEW.ready_at IS NOT NULL
       OR NOT (CASE WHEN NEW.status IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMED_OUT')
                       THEN NEW.finished_at IS NOT NULL
                   WHEN NEW.status IN ('QUEUED', 'SCHEDULED', 'RUNNING')
                       THEN NEW.finished_at IS NULL AND NEW.ready_at IS NOT NULL
                   WHEN NEW.status IN ('WAITING', 'STUCK') THEN NEW.finished_at IS NULL
                   ELSE false END) THEN
        RAISE EXCEPTION 'run % cannot be % with ready_at % and finished_at %',
            NEW.run_id, NEW.status, NEW.ready_at, NEW.finished_at USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$body$;
CREATE OR REPLACE TRIGGER check_run BEFORE INSERT OR UPDATE ON apiary.run
    FOR EACH ROW EXECUTE FUNCTION apiary.check_run();

-- A short name of a run for notifications and advisory locks: payloads are bounded, run ids are not.
CREATE OR REPLACE FUNCTION apiary.run_hash(p_run_id text) RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT pg_catalog.md5(p_run_id)
$body$;

-- Start a run, or return the one that has the id already. The row is there before anything runs.
-- With p_executor the caller holds the run at once (an in-database run); else it is queued. A child
-- is started by who holds its parent, so that one whose parent was cancelled is not started.
CREATE OR REPLACE FUNCTION apiary.start_run(
    p_run_id text, p_application text, p_deployment text, p_workflow text, p_in_database boolean,
    p_input json, p_input_digest text, p_principal text, p_trace text,
    p_queue text, p_priority integer, p_queue_key text, p_deduplication text,
    p_start_at timestamptz, p_deadline timestamptz, p_max_adoptions integer,
    p_parent_run_id text, p_parent_seq integer, p_parent_epoch integer, p_executor text, p_lease interval
) RETURNS TABLE (run_id text, created boolean, status text, output json, error json, epoch integer)
LANGUAGE plpgsql SECURITY DEFINER AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := apiary.clock();
    v_held apiary.run;
    v_status text := CASE WHEN p_executor IS NOT NULL THEN 'RUNNING'
                          WHEN p_start_at > v_now THEN 'SCHEDULED' ELSE 'QUEUED' END;
BEGIN
    IF p_queue IS NOT NULL THEN
        -- The lock is what a foreign key would take: apiary.delete_queue waits for it, or is waited for.
        PERFORM FROM apiary.queue q WHERE q.name = p_queue FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no queue %', p_queue USING ERRCODE = 'AP006', DETAIL = 'queue ' || p_queue;
        END IF;
    END IF;
    IF p_parent_run_id IS NOT NULL THEN
        PERFORM apiary.held_run(p_parent_run_id, p_parent_epoch);
    END IF;
    -- The guard that a direct invocation of the same id would also insert.
    INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal, status,
                                  input_digest, started_at, finished_at)
    VALUES (p_run_id, 0, 'start', p_workflow, p_application, p_deployment, p_principal, 'SUCCEEDED',
            p_input_digest, v_now, v_now)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        INSERT INTO apiary.run AS r (run_id, application, workflow, deployment, principal, status, in_database,
            input, input_digest, queue, priority, queue_key, deduplication, ready_at, executor, epoch,
            deadline, max_adoptions, parent_run_id, parent_seq, trace, created_at, started_at)
        VALUES (p_run_id, p_application, p_workflow, p_deployment, p_principal, v_status, p_in_database,
            p_input, p_input_digest, p_queue, coalesce(p_priority, 0), p_queue_key, p_deduplication,
            CASE v_status WHEN 'RUNNING' THEN v_now + p_lease ELSE greatest(v_now, p_start_at) END,
            p_executor, CASE v_status WHEN 'RUNNING' THEN 1 ELSE 0 END,
            p_deadline, coalesce(p_max_adoptions, 50), p_parent_run_id, p_parent_seq, p_trace, v_now,
            CASE v_status WHEN 'RUNNING' THEN v_now END)
        ON CONFLICT ((coalesce(queue, '')), deduplication) WHERE finished_at IS NULL AND deduplication IS NOT NULL
        DO NOTHING;
        IF NOT FOUND THEN
            -- Another unfinished run of the queue does this work: that one is the answer.
            DELETE FROM apiary.operation o WHERE o.run_id = p_run_id AND o.seq = 0;
            SELECT * INTO v_held FROM apiary.run r
             WHERE coalesce(r.queue, '') = coalesce(p_queue, '') AND r.deduplication = p_deduplication
               AND r.finished_at IS NULL;
            IF NOT FOUND THEN  -- it has ended since; who called tries again
                RAISE EXCEPTION 'the run that had the key % has just ended', p_deduplication
                    USING ERRCODE = 'serialization_failure';
            END IF;
            RETURN QUERY SELECT v_held.run_id, false, v_held.status, v_held.output, v_held.error, v_held.epoch;
            RETURN;
        END IF;
        IF v_status = 'QUEUED' THEN
            PERFORM pg_catalog.pg_notify('apiary_ready', coalesce(apiary.run_hash(p_queue), ''));
        END IF;
        RETURN QUERY SELECT p_run_id, true, v_status, NULL::json, NULL::json,
                            CASE v_status WHEN 'RUNNING' THEN 1 ELSE 0 END;
        RETURN;
    END IF;
    SELECT * INTO v_held FROM apiary.run r WHERE r.run_id = p_run_id;
    IF v_held.run_id IS NULL OR v_held.workflow <> p_workflow OR v_held.application <> p_application
       OR v_held.input_digest <> p_input_digest THEN
        RAISE EXCEPTION 'run % is taken', p_run_id USING ERRCODE = 'AP007',
            DETAIL = (SELECT json_build_object(
                        'recorded', o.application || '/' || o.name, 'recorded_digest', o.input_digest,
                        'requested', p_application || '/' || p_workflow, 'requested_digest', p_input_digest)
                        FROM apiary.operation o WHERE o.run_id = p_run_id AND o.seq = 0)::text;
    END IF;
    RETURN QUERY SELECT v_held.run_id, false, v_held.status, v_held.output, v_held.error, v_held.epoch;
END
$body$;

-- The run, locked, if the caller still holds it: AP004 when the epoch, the state or the lease says no.
CREATE OR REPLACE FUNCTION apiary.held_run(p_run_id text, p_epoch integer) RETURNS apiary.run
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run;
BEGIN
    SELECT * INTO v_run FROM apiary.run WHERE run_id = p_run_id FOR NO KEY UPDATE;
    IF v_run.run_id IS NULL OR v_run.status <> 'RUNNING' OR v_run.epoch <> p_epoch
       OR (NOT v_run.in_database AND v_run.ready_at <= apiary.clock()) THEN
        RAISE EXCEPTION 'the lease on run % is lost', p_run_id USING ERRCODE = 'AP004',
            DETAIL = coalesce(json_build_object('status', v_run.status, 'epoch', v_run.epoch,
                                                'held_epoch', p_epoch, 'lease_until', v_run.ready_at)::text,
                              'the run does not exist');
    END IF;
    RETURN v_run;
END
$body$;

-- Insert operations of a run that did not insert themselves: deferred read-only calls, steps, waits.
CREATE OR REPLACE FUNCTION apiary.insert_operations(
    p_run_id text, p_application text, p_deployment text, p_principal text, p_trace text, p_operations json
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF p_operations IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal, status,
        input, input_digest, output, error, attempt, started_at, finished_at, isolation, read_only,
        reads, calls, log, trace)
    SELECT p_run_id, o.seq, o.kind, o.name, p_application, p_deployment, p_principal,
           CASE WHEN o.error IS NULL THEN 'SUCCEEDED' ELSE 'FAILED' END,
           o.input, o.input_digest, o.output, o.error, coalesce(o.attempt, 1),
           pg_catalog.to_timestamp(o.started_at), pg_catalog.to_timestamp(o.finished_at),
           o.isolation, coalesce(o.read_only, false), o.reads, o.calls, o.log, p_trace
      FROM pg_catalog.json_to_recordset(p_operations) AS o (
           seq integer, kind text, name text, input json, input_digest text, output json, error json,
           attempt integer, started_at double precision, finished_at double precision, isolation text,
           read_only boolean, reads json, calls json, log text);
END
$body$;

-- Record operations, with the values that they wrote to streams: [{key, values, seq}].
CREATE OR REPLACE FUNCTION apiary.record_operations(
    p_run_id text, p_epoch integer, p_operations json, p_streams json
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run := apiary.held_run(p_run_id, p_epoch);
BEGIN
    PERFORM apiary.insert_operations(v_run.run_id, v_run.application, v_run.deployment, v_run.principal,
                                     v_run.trace, p_operations);
    INSERT INTO apiary.stream (run_id, key, "offset", value, seq)
    SELECT p_run_id, s.key,
           coalesce((SELECT max(t."offset") + 1 FROM apiary.stream t WHERE t.run_id = p_run_id AND t.key = s.key), 0)
           + pg_catalog.row_number() OVER (PARTITION BY s.key ORDER BY w.position, v.position) - 1,
           v.value, s.seq
      FROM pg_catalog.json_array_elements(p_streams) WITH ORDINALITY w (item, position)
      CROSS JOIN LATERAL pg_catalog.json_to_record(w.item) AS s (key text, seq integer, "values" json)
      CROSS JOIN LATERAL pg_catalog.json_array_elements(s."values") WITH ORDINALITY v (value, position);
    IF p_streams IS NOT NULL THEN
        PERFORM pg_catalog.pg_notify('apiary_changed', apiary.run_hash(p_run_id));
    END IF;
END
$body$;

-- Make a WAITING run claimable at once. The caller holds its row's lock.
CREATE OR REPLACE FUNCTION apiary.wake_run(p_run_id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    UPDATE apiary.run SET status = 'QUEUED', ready_at = apiary.clock()
     WHERE run_id = p_run_id AND status = 'WAITING';
    IF FOUND THEN
        PERFORM pg_catalog.pg_notify('apiary_ready', '');
    END IF;
END
$body$;

-- A run has ended (event_key ''), or set an event: count that down for every run that waits for it.
-- One that waits for successes counts failures apart, and is woken when too many have failed.
CREATE OR REPLACE FUNCTION apiary.wake_waiters(p_run_id text, p_event_key text, p_failed boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_waiter text;
    v_left integer;
    v_failures integer;
BEGIN
    FOR v_waiter IN
        DELETE FROM apiary.waiter w WHERE w.awaited_run_id = p_run_id AND w.event_key = p_event_key
        RETURNING w.run_id
    LOOP
        UPDATE apiary.run
           SET waiting_left = waiting_left - CASE WHEN p_failed AND waiting_failures IS NOT NULL THEN 0 ELSE 1 END,
               waiting_failures = waiting_failures - CASE WHEN p_failed THEN 1 ELSE 0 END
         WHERE run_id = v_waiter AND status = 'WAITING'
        RETURNING waiting_left, waiting_failures INTO v_left, v_failures;
        IF FOUND AND (v_left <= 0 OR v_failures < 0) THEN
            PERFORM apiary.wake_run(v_waiter);
        END IF;
    END LOOP;
END
$body$;

-- Put a run aside until its timer is due or something wakes it. p_waiting_for is one of
--   {kind: time}
--   {kind: message, topic}
--   {kind: event, run_id, key}
--   {kind: run, runs: [id, ...], need: how many of them must have ended, failures: how many may fail}
--     with failures, only those that succeeded count for need
-- and may hold more for the executor. The awaited runs' rows are locked first, then the run's own
-- (the order in which an ending run takes them), and only then is it looked whether what it waits for
-- is there already: nothing can come about between the look and the commit.
-- p_operations: read-only calls so far, which the wait makes durable.
CREATE OR REPLACE FUNCTION apiary.park_run(
    p_run_id text, p_epoch integer, p_waiting_for json, p_wake_at timestamptz, p_operations json
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run;
    v_kind text := p_waiting_for ->> 'kind';
    v_awaited text[] := CASE v_kind
        WHEN 'event' THEN ARRAY[p_waiting_for ->> 'run_id']
        WHEN 'run' THEN ARRAY(SELECT pg_catalog.json_array_elements_text(p_waiting_for -> 'runs')) END;
    v_left integer := coalesce((p_waiting_for ->> 'need')::integer, 1);
    v_failures integer := (p_waiting_for ->> 'failures')::integer;
    v_failed integer;
BEGIN
    PERFORM FROM apiary.run r WHERE r.run_id = ANY (v_awaited) ORDER BY r.run_id FOR SHARE;
    v_run := apiary.held_run(p_run_id, p_epoch);
    PERFORM apiary.insert_operations(v_run.run_id, v_run.application, v_run.deployment, v_run.principal,
                                     v_run.trace, p_operations);
    DELETE FROM apiary.waiter w WHERE w.run_id = p_run_id;  -- of a wait that timed out
    IF v_kind = 'run' THEN
        INSERT INTO apiary.waiter (awaited_run_id, event_key, run_id)
        SELECT r.run_id, '', p_run_id FROM apiary.run r WHERE r.run_id = ANY (v_awaited) AND r.finished_at IS NULL
        ON CONFLICT DO NOTHING;
        SELECT v_left - count(*) FILTER (WHERE v_failures IS NULL OR r.status = 'SUCCEEDED'),
               count(*) FILTER (WHERE r.status <> 'SUCCEEDED')
          INTO v_left, v_failed
          FROM apiary.run r WHERE r.run_id = ANY (v_awaited) AND r.finished_at IS NOT NULL;
        v_failures := v_failures - v_failed;
    ELSIF v_kind = 'event' THEN
        INSERT INTO apiary.waiter (awaited_run_id, event_key, run_id)
        VALUES (p_waiting_for ->> 'run_id', 'event ' || (p_waiting_for ->> 'key'), p_run_id)
        ON CONFLICT DO NOTHING;
        v_left := v_left - (SELECT count(*) FROM apiary.event e
                             WHERE e.run_id = p_waiting_for ->> 'run_id' AND e.key = p_waiting_for ->> 'key');
    ELSIF v_kind = 'message' THEN
        v_left := v_left - (SELECT count(*) FROM apiary.mailbox m
                             WHERE m.run_id = p_run_id AND m.topic = p_waiting_for ->> 'topic'
                               AND m.taken_by_seq IS NULL);
    END IF;
    UPDATE apiary.run SET status = 'WAITING', waiting_for = p_waiting_for, waiting_left = v_left,
                          waiting_failures = v_failures, ready_at = p_wake_at, executor = NULL,
                          adoptions = 0  -- it has come so far by itself
     WHERE run_id = p_run_id;
    IF v_left <= 0 OR v_failures < 0 THEN
        PERFORM apiary.wake_run(p_run_id);
        RETURN 'QUEUED';
    END IF;
    RETURN 'WAITING';
END
$body$;

-- Give a run back: an executor drains, or the run leaves the database.
CREATE OR REPLACE FUNCTION apiary.release_run(
    p_run_id text, p_epoch integer, p_leave_database boolean, p_operations json
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run := apiary.held_run(p_run_id, p_epoch);
BEGIN
    PERFORM apiary.insert_operations(v_run.run_id, v_run.application, v_run.deployment, v_run.principal,
                                     v_run.trace, p_operations);
    UPDATE apiary.run SET status = 'QUEUED', ready_at = apiary.clock(), executor = NULL,
                          in_database = in_database AND NOT p_leave_database
     WHERE run_id = p_run_id;
    PERFORM pg_catalog.pg_notify('apiary_ready', '');
END
$body$;

-- The end of a run: result and status in one commit. Whoever waits for it is woken.
CREATE OR REPLACE FUNCTION apiary.finish_run(
    p_run_id text, p_epoch integer, p_status text, p_output json, p_error json, p_calls integer, p_unrecorded json
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run := apiary.held_run(p_run_id, p_epoch);
BEGIN
    PERFORM apiary.end_run(v_run, p_status, p_output, p_error, p_calls, p_unrecorded);
END
$body$;

-- The end of a run, by itself or from outside; the caller holds its row's lock.
CREATE OR REPLACE FUNCTION apiary.end_run(
    p_run apiary.run, p_status text, p_output json, p_error json, p_calls integer, p_unrecorded json
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    UPDATE apiary.run
       SET status = p_status, output = p_output, error = p_error, calls = coalesce(p_calls, calls),
           unrecorded = p_unrecorded, ready_at = NULL, waiting_for = NULL, finished_at = apiary.clock(),
           epoch = epoch + CASE WHEN p_status IN ('CANCELLED', 'TIMED_OUT') THEN 1 ELSE 0 END
     WHERE run_id = p_run.run_id;
    PERFORM apiary.wake_waiters(p_run.run_id, '', p_status <> 'SUCCEEDED');
    DELETE FROM apiary.waiter w WHERE w.run_id = p_run.run_id;
    IF p_run.queue IS NOT NULL THEN  -- its place is free
        PERFORM pg_catalog.pg_notify('apiary_ready', '');
    END IF;
    IF p_status IN ('CANCELLED', 'TIMED_OUT') AND p_run.status = 'RUNNING' THEN
        PERFORM pg_catalog.pg_notify('apiary_control', apiary.run_hash(p_run.run_id));
        IF p_run.in_database THEN
            PERFORM apiary.interrupt_in_database(p_run.run_id);
        END IF;
    END IF;
    -- A run that lives in the database and has no parent ends in the call that waits for it.
    IF NOT p_run.in_database OR p_run.parent_run_id IS NOT NULL THEN
        PERFORM pg_catalog.pg_notify('apiary_changed', apiary.run_hash(p_run.run_id));
    END IF;
END
$body$;

-- Extend the leases of an executor's runs; the ids that are returned are still its own. A lease is
-- never shortened: a function that takes long may have been given a longer one.
CREATE OR REPLACE FUNCTION apiary.renew_leases(p_executor text, p_runs text[], p_epochs integer[], p_lease interval)
RETURNS TABLE (run_id text, lease_until timestamptz) LANGUAGE sql SECURITY DEFINER AS $body$
    UPDATE apiary.executor SET seen_at = apiary.clock() WHERE name = p_executor;
    UPDATE apiary.run r SET ready_at = greatest(r.ready_at, apiary.clock() + p_lease)
      FROM ROWS FROM (pg_catalog.unnest(p_runs), pg_catalog.unnest(p_epochs)) AS h (run_id, epoch)
     WHERE r.run_id = h.run_id AND r.epoch = h.epoch AND r.status = 'RUNNING' AND r.executor = p_executor
       AND r.ready_at > apiary.clock()
    RETURNING r.run_id, r.ready_at
$body$;

-- What recording costs, per workflow: how many of the calls of its ended runs were recorded, and how much
-- of the runs' time was not spent in their functions, steps and children.
CREATE OR REPLACE VIEW provenance.workflow_overhead AS
SELECT r.application, r.workflow, r.deployment, r.in_database,
       count(*) AS runs,
       sum(r.calls) AS calls,
       sum(o.recorded) AS recorded,
       round(sum(o.recorded) / nullif(sum(r.calls), 0)::numeric, 4) AS recorded_share,
       round(avg(extract(epoch FROM r.finished_at - r.started_at) * 1000)::numeric, 3) AS mean_run_ms,
       round(avg(o.inside_ms)::numeric, 3) AS mean_inside_ms,
       round(avg(extract(epoch FROM r.finished_at - r.started_at) * 1000 - o.inside_ms)::numeric, 3)
           AS mean_overhead_ms
  FROM apiary.run r
  CROSS JOIN LATERAL (
        SELECT count(*) AS recorded,
               coalesce(sum(extract(epoch FROM p.finished_at - p.started_at) * 1000), 0) AS inside_ms
          FROM apiary.operation p WHERE p.run_id = r.run_id AND p.seq > 0) o
 WHERE r.status = 'SUCCEEDED'
 GROUP BY 1, 2, 3, 4;
COMMENT ON VIEW provenance.workflow_overhead IS
    'per workflow and version: share of calls that were recorded, and time outside of them';
