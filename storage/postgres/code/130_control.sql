-- Control of runs from outside: cancel, resume, fork, delete.

-- Stop the backend in which an in-database run is: it holds the run's lock. Belongs to the superuser who
-- installed the platform, as only a superuser may cancel a superuser's statement; that lock is all that
-- it acts on.
CREATE OR REPLACE FUNCTION apiary.interrupt_in_database(p_run_id text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    SELECT pg_catalog.pg_cancel_backend(l.pid) FROM pg_catalog.pg_locks l
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
       AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
       AND (l.classid::bigint << 32 | l.objid::bigint) = apiary.in_database_lock(p_run_id)
       AND l.pid <> pg_catalog.pg_backend_pid()
$body$;

-- Cancel a run, not its children. False when it has ended already.
CREATE OR REPLACE FUNCTION apiary.cancel_run(p_run_id text, p_reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run;
    v_message text := 'the run was cancelled' || coalesce(': ' || p_reason, '');
BEGIN
    SELECT * INTO v_run FROM apiary.run r WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no run %', p_run_id USING ERRCODE = 'AP006', DETAIL = 'run ' || p_run_id;
    ELSIF v_run.finished_at IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM apiary.end_run(v_run, 'CANCELLED', NULL, json_build_object('type', 'Cancelled', 'message', v_message,
        'platform', json_build_object('error', 'Cancelled', 'message', v_message)), NULL, NULL);
    PERFORM pg_catalog.pg_notify('apiary_changed', apiary.run_hash(p_run_id));
    RETURN true;
END
$body$;

-- A run and all its unfinished descendants, parents first.
CREATE OR REPLACE FUNCTION apiary.unfinished_family(p_run_id text) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER AS $body$
    WITH RECURSIVE family (run_id, depth) AS (
        SELECT p_run_id, 0
        UNION ALL
        SELECT r.run_id, f.depth + 1 FROM apiary.run r JOIN family f ON r.parent_run_id = f.run_id
    )
    SELECT f.run_id FROM family f JOIN apiary.run r USING (run_id) WHERE r.finished_at IS NULL ORDER BY f.depth
$body$;

-- Let a run that ended without success go on: what is recorded stays, the rest runs.
CREATE OR REPLACE FUNCTION apiary.resume_run(p_run_id text, p_deadline timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run;
BEGIN
    -- What was under way when it was cancelled has ended then, and can commit nothing more.
    PERFORM pg_catalog.pg_advisory_xact_lock(apiary.in_database_lock(p_run_id));
    SELECT * INTO v_run FROM apiary.run r WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no run %', p_run_id USING ERRCODE = 'AP006', DETAIL = 'run ' || p_run_id;
    ELSIF v_run.status NOT IN ('STUCK', 'FAILED', 'CANCELLED', 'TIMED_OUT') THEN
        RETURN false;
    ELSIF v_run.deleting THEN
        RAISE EXCEPTION 'run % is being deleted', p_run_id USING ERRCODE = 'AP005', DETAIL = p_run_id;
    END IF;
    -- The operation that failed last is what the run ended with: it is tried again.
    DELETE FROM apiary.operation o
     WHERE v_run.status = 'FAILED' AND o.run_id = p_run_id AND o.status = 'FAILED'
       AND o.seq = (SELECT max(n.seq) FROM apiary.operation n WHERE n.run_id = p_run_id);
    -- It waits for a place in its queue like a new one: it gave its own up when it ended.
    UPDATE apiary.run SET status = 'QUEUED', ready_at = apiary.clock(), finished_at = NULL, error = NULL,
        output = NULL, adoptions = 0, executor = NULL, deadline = p_deadline, waiting_for = NULL,
        calls = NULL, unrecorded = NULL, in_database = false, started_at = NULL
     WHERE run_id = p_run_id;
    PERFORM pg_catalog.pg_notify('apiary_ready', '');
    RETURN true;
EXCEPTION WHEN unique_violation THEN
    RAISE EXCEPTION 'another unfinished run does the work of run %', p_run_id USING ERRCODE = 'AP005',
        DETAIL = p_run_id, HINT = 'it has the same deduplication key: wait for its end, or cancel it';
END
$body$;

-- A new run that begins with another's first operations, up to and without p_from_seq. With
-- p_replaced_output, operation p_from_seq is taken over with that output in place of its own.
CREATE OR REPLACE FUNCTION apiary.fork_run(
    p_run_id text, p_from_seq integer, p_new_run_id text, p_deployment text, p_replaced_output json, p_principal text
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run;
    v_created boolean;
BEGIN
    SELECT * INTO v_run FROM apiary.run r WHERE r.run_id = p_run_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no run %', p_run_id USING ERRCODE = 'AP006', DETAIL = 'run ' || p_run_id;
    END IF;
    IF v_run.deleting THEN
        RAISE EXCEPTION 'run % is being deleted', p_run_id USING ERRCODE = 'AP005', DETAIL = p_run_id;
    ELSIF p_from_seq < 1 OR p_replaced_output IS NOT NULL AND NOT EXISTS (
            SELECT FROM apiary.operation o WHERE o.run_id = p_run_id AND o.seq = p_from_seq) THEN
        RAISE EXCEPTION 'run % has no operation %', p_run_id, p_from_seq USING ERRCODE = 'AP006',
            DETAIL = 'operation ' || p_run_id || '/' || p_from_seq;
    END IF;
    SELECT s.created INTO v_created FROM apiary.start_run(p_new_run_id, v_run.application,
        coalesce(p_deployment, v_run.deployment), v_run.workflow, false, v_run.input, v_run.input_digest,
        p_principal, v_run.trace, v_run.queue, v_run.priority, v_run.queue_key, NULL, NULL, NULL,
        v_run.max_adoptions, NULL, NULL, NULL, NULL, NULL) s;
    IF NOT v_created THEN
        IF NOT EXISTS (SELECT FROM apiary.run r WHERE r.run_id = p_new_run_id AND r.forked_from = p_run_id) THEN
            RAISE EXCEPTION 'run % is there already', p_new_run_id USING ERRCODE = 'AP005', DETAIL = p_new_run_id;
        END IF;
        RETURN p_new_run_id;  -- a repeated request
    END IF;
    UPDATE apiary.run SET forked_from = p_run_id, seed = coalesce(v_run.seed, p_run_id)
     WHERE run_id = p_new_run_id;
    -- Without the digest of the input: the fork's own id and its other code may show in arguments.
    INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal, status, input,
        input_digest, output, error, attempt, started_at, finished_at, isolation, read_only, log)
    SELECT p_new_run_id, o.seq, o.kind, o.name, o.application, o.deployment, o.principal,
           CASE WHEN o.seq = p_from_seq THEN 'SUCCEEDED' ELSE o.status END, o.input, NULL,
           CASE WHEN o.seq = p_from_seq THEN p_replaced_output ELSE o.output END,
           CASE WHEN o.seq = p_from_seq THEN NULL ELSE o.error END, o.attempt, o.started_at, o.finished_at,
           o.isolation, o.read_only, 'taken over from run ' || p_run_id
      FROM apiary.operation o
     WHERE o.run_id = p_run_id AND o.seq > 0
       AND (o.seq < p_from_seq OR o.seq = p_from_seq AND p_replaced_output IS NOT NULL);
    RETURN p_new_run_id;
END
$body$;

-- Delete up to p_limit rows of what belongs to an ended run; true when all of it is gone. The run's
-- own row and its guard (operation 0) go last and together, so that no state exists in which the id
-- answers for a run that is half there.
CREATE OR REPLACE FUNCTION apiary.delete_run(p_run_id text, p_limit integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_left integer := p_limit;
    v_deleted integer;
BEGIN
    PERFORM FROM apiary.run r WHERE r.run_id = p_run_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    IF EXISTS (SELECT FROM apiary.run r WHERE r.run_id = p_run_id AND r.finished_at IS NULL) THEN
        RAISE EXCEPTION 'run % has not ended', p_run_id USING ERRCODE = 'AP005', DETAIL = p_run_id,
            HINT = 'cancel it first';
    END IF;
    UPDATE apiary.run SET deleting = true WHERE run_id = p_run_id AND NOT deleting;
    DELETE FROM apiary.operation WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM apiary.operation WHERE run_id = p_run_id AND seq > 0 LIMIT v_left));
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    v_left := v_left - v_deleted;
    IF v_left > 0 THEN
        DELETE FROM apiary.attempt WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM apiary.attempt WHERE run_id = p_run_id LIMIT v_left));
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
        v_left := v_left - v_deleted;
    END IF;
    IF v_left > 0 THEN
        DELETE FROM apiary.stream WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM apiary.stream WHERE run_id = p_run_id LIMIT v_left));
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
        v_left := v_left - v_deleted;
    END IF;
    IF v_left <= 0 THEN
        RETURN false;
    END IF;
    DELETE FROM apiary.mailbox WHERE run_id = p_run_id;
    DELETE FROM apiary.event WHERE run_id = p_run_id;
    DELETE FROM apiary.waiter WHERE run_id = p_run_id;
    DELETE FROM apiary.operation WHERE run_id = p_run_id;
    DELETE FROM apiary.run WHERE run_id = p_run_id;
    RETURN true;
END
$body$;

-- The oldest ended runs whose end lies before p_before, for deleting one by one.
CREATE OR REPLACE FUNCTION apiary.expired_runs(p_before timestamptz, p_limit integer) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER AS $body$
    SELECT r.run_id FROM apiary.run r WHERE r.finished_at < p_before ORDER BY r.finished_at LIMIT p_limit
$body$;
