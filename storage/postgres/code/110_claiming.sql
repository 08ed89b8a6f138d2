-- Claiming: an executor takes runs that may move, within the limits of their queues.

-- The lock that says that something of a run is under way in a backend, whatever became of its
-- executor: an in-database run holds it alone while the backend lives; functions of a run in an
-- executor share it until their transactions end. Who claims a started run must get it first.
CREATE OR REPLACE FUNCTION apiary.in_database_lock(p_run_id text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $body$
    SELECT pg_catalog.hashtextextended('apiary run ' || p_run_id, 0)
$body$;

-- Begin a function of a run for an executor whose lease lasts until p_lease_until; false: it is over.
-- Advisory locks are no part of a snapshot: this neither conflicts with renewals nor reads an old lease.
CREATE OR REPLACE FUNCTION apiary.enter_run(p_run_id text, p_lease_until timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(apiary.in_database_lock(p_run_id));
    RETURN apiary.clock() < p_lease_until;
END
$body$;

-- How many new runs of a queue may start now.
CREATE OR REPLACE FUNCTION apiary.queue_room(p_queue apiary.queue, p_executor text) RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER AS $body$
    SELECT CASE WHEN p_queue.paused THEN 0 ELSE greatest(0, least(
        p_queue.concurrency - (SELECT count(*) FROM apiary.run r
            WHERE r.queue = p_queue.name AND r.started_at IS NOT NULL AND r.finished_at IS NULL),
        p_queue.executor_concurrency - (SELECT count(*) FROM apiary.run r
            WHERE r.queue = p_queue.name AND r.started_at IS NOT NULL AND r.finished_at IS NULL
              AND r.executor = p_executor),
        p_queue.rate_limit - (SELECT count(*) FROM apiary.run r
            WHERE r.queue = p_queue.name AND r.started_at > apiary.clock() - p_queue.rate_period),
        1000000))::integer END
$body$;

-- The next runs of a queue whose keys have room. Only unstarted runs are limited; the scan is bounded.
CREATE OR REPLACE FUNCTION apiary.next_in_queue(p_queue text, p_key_concurrency integer, p_limit integer)
RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF p_key_concurrency IS NULL THEN
        RETURN QUERY
        SELECT r.run_id FROM apiary.run r
         WHERE r.queue IS NOT DISTINCT FROM p_queue AND r.ready_at <= apiary.clock() AND r.started_at IS NULL
         ORDER BY r.priority, r.ready_at LIMIT p_limit FOR UPDATE SKIP LOCKED;
    ELSE
        RETURN QUERY
        WITH candidate AS MATERIALIZED (
            SELECT r.run_id, r.queue_key, r.priority, r.ready_at FROM apiary.run r
             WHERE r.queue = p_queue AND r.ready_at <= apiary.clock() AND r.started_at IS NULL
             ORDER BY r.priority, r.ready_at LIMIT 10000 FOR UPDATE SKIP LOCKED
        ), active AS (
            SELECT r.queue_key, count(*) AS runs FROM apiary.run r
             WHERE r.queue = p_queue AND r.started_at IS NOT NULL AND r.finished_at IS NULL GROUP BY 1
        ), ranked AS (
            SELECT c.*, pg_catalog.row_number() OVER (PARTITION BY c.queue_key ORDER BY c.priority, c.ready_at)
                        + coalesce(a.runs, 0) AS place
              FROM candidate c LEFT JOIN active a ON a.queue_key = c.queue_key
        )
        SELECT k.run_id FROM ranked k
         WHERE k.queue_key IS NULL OR k.place <= p_key_concurrency
         ORDER BY k.priority, k.ready_at LIMIT p_limit;
    END IF;
END
$body$;

-- Take up to p_limit runs. First those that were started before (a wait is over, a lease has ended,
-- an executor drained): they have their places. Then new ones, queue by queue with equal shares, so
-- that a backlog of one queue does not delay another. p_queues NULL: every queue, and none.
CREATE OR REPLACE FUNCTION apiary.claim_runs(
    p_executor text, p_limit integer, p_lease interval, p_applications text[], p_queues text[]
) RETURNS SETOF apiary.run LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_now timestamptz := apiary.clock();
    v_taken text[] := '{}';
    v_run record;
    v_queue apiary.queue;
    v_queues integer;
    v_share integer;
BEGIN
    FOR v_run IN
        SELECT r.run_id, r.status, r.in_database, r.adoptions, r.max_adoptions FROM apiary.run r
         WHERE r.ready_at <= v_now AND r.started_at IS NOT NULL
           AND (p_applications IS NULL OR r.application = ANY (p_applications))
         ORDER BY r.ready_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        IF NOT pg_catalog.pg_try_advisory_xact_lock(apiary.in_database_lock(v_run.run_id)) THEN
            -- Something of it is still under way: look again soon.
            UPDATE apiary.run SET ready_at = v_now
                   + CASE v_run.status WHEN 'RUNNING' THEN interval '1 second' ELSE interval '0.1 seconds' END
             WHERE run_id = v_run.run_id;
        ELSIF v_run.status = 'RUNNING' AND v_run.adoptions >= v_run.max_adoptions THEN
            UPDATE apiary.run SET status = 'STUCK', ready_at = NULL, epoch = epoch + 1 WHERE run_id = v_run.run_id;
            PERFORM pg_catalog.pg_notify('apiary_changed', apiary.run_hash(v_run.run_id));
        ELSE
            v_taken := v_taken || v_run.run_id;
        END IF;
    END LOOP;

    IF cardinality(v_taken) < p_limit AND p_queues IS NULL THEN
        v_taken := v_taken || ARRAY(SELECT apiary.next_in_queue(NULL, NULL, p_limit - cardinality(v_taken)));
    END IF;
    SELECT count(*) INTO v_queues FROM apiary.queue q WHERE p_queues IS NULL OR q.name = ANY (p_queues);
    v_share := greatest(1, (p_limit - cardinality(v_taken)) / greatest(1, v_queues));
    -- Whoever claims from a limited queue holds its row, so that limits are counted by one at a time.
    FOR v_queue IN
        SELECT * FROM apiary.queue q WHERE (p_queues IS NULL OR q.name = ANY (p_queues)) AND NOT q.paused
         ORDER BY pg_catalog.random() FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        EXIT WHEN cardinality(v_taken) >= p_limit;
        v_taken := v_taken || ARRAY(
            SELECT apiary.next_in_queue(v_queue.name, v_queue.key_concurrency,
                least(apiary.queue_room(v_queue, p_executor), v_share, p_limit - cardinality(v_taken))));
    END LOOP;

    RETURN QUERY
    UPDATE apiary.run r
       SET status = 'RUNNING', executor = p_executor, epoch = r.epoch + 1,
           adoptions = r.adoptions + CASE r.status WHEN 'RUNNING' THEN 1 ELSE 0 END,
           ready_at = v_now + p_lease, started_at = coalesce(r.started_at, v_now)
     WHERE r.run_id = ANY (v_taken)
    RETURNING r.*;
END
$body$;

-- What an executor looks at when it has nothing else to do, in one statement: the database's clock, and
-- when the next run may move, the next deadline passes and the next schedule is due.
CREATE OR REPLACE FUNCTION apiary.look(
    OUT now timestamptz, OUT ready_at timestamptz, OUT deadline timestamptz, OUT schedule_at timestamptz
) LANGUAGE sql STABLE SECURITY DEFINER AS $body$
    SELECT apiary.clock(),
           (SELECT min(r.ready_at) FROM apiary.run r WHERE r.ready_at IS NOT NULL),
           (SELECT min(r.deadline) FROM apiary.run r WHERE r.deadline IS NOT NULL AND r.finished_at IS NULL),
           (SELECT min(s.next_at) FROM apiary.schedule s WHERE NOT s.paused)
$body$;

-- End the runs whose deadline has passed; returns how many.
CREATE OR REPLACE FUNCTION apiary.time_out_runs(p_limit integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run;
    v_count integer := 0;
BEGIN
    FOR v_run IN
        SELECT * FROM apiary.run r WHERE r.deadline <= apiary.clock() AND r.finished_at IS NULL AND r.status <> 'STUCK'
         ORDER BY r.deadline LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        PERFORM apiary.end_run(v_run, 'TIMED_OUT', NULL, json_build_object(
            'type', 'DeadlineExceeded', 'message', 'the run did not end before ' || v_run.deadline,
            'platform', json_build_object('error', 'DeadlineExceeded',
                'message', 'the run did not end before ' || v_run.deadline)), NULL, NULL);
        PERFORM pg_catalog.pg_notify('apiary_control', apiary.run_hash(v_run.run_id));
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$body$;
