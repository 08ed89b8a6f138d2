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

-- How many new runs of a queue may start now. A run that is STUCK has given its place up.
CREATE OR REPLACE FUNCTION apiary.queue_room(p_queue apiary.queue, p_executor text) RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER AS $body$
    SELECT CASE WHEN p_queue.paused THEN 0 ELSE greatest(0, least(
        p_queue.concurrency - (SELECT count(*) FROM apiary.run r
            WHERE r.queue = p_queue.name AND r.started_at IS NOT NULL AND r.finished_at IS NULL
              AND r.status <> 'STUCK'),
        p_queue.executor_concurrency - (SELECT count(*) FROM apiary.run r
            WHERE r.queue = p_queue.name AND r.started_at IS NOT NULL AND r.finished_at IS NULL
              AND r.executor = p_executor AND r.status <> 'STUCK'),
        p_queue.rate_limit - (SELECT count(*) FROM apiary.run r
            WHERE r.queue = p_queue.name AND r.started_at > apiary.clock() - p_queue.rate_period),
        1000000))::integer END
$body$;

-- The next new runs of a queue (NULL: those of none), within the limit per key; the scan is bounded.
CREATE OR REPLACE FUNCTION apiary.next_in_queue(
    p_queue text, p_key_concurrency integer, p_now timestamptz, p_applications text[], p_limit integer
) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF p_limit <= 0 THEN
        RETURN;
    ELSIF p_queue IS NULL THEN
        RETURN QUERY
        SELECT r.run_id FROM apiary.run r
         WHERE r.queue IS NULL AND r.ready_at <= p_now AND r.started_at IS NULL
           AND (p_applications IS NULL OR r.application = ANY (p_applications))
         ORDER BY r.priority, r.ready_at LIMIT p_limit FOR UPDATE SKIP LOCKED;
    ELSIF p_key_concurrency IS NULL THEN
        RETURN QUERY
        SELECT r.run_id FROM apiary.run r
         WHERE r.queue = p_queue AND r.ready_at <= p_now AND r.started_at IS NULL
           AND (p_applications IS NULL OR r.application = ANY (p_applications))
         ORDER BY r.priority, r.ready_at LIMIT p_limit FOR UPDATE SKIP LOCKED;
    ELSE
        RETURN QUERY
        WITH active AS MATERIALIZED (
            SELECT r.queue_key, count(*) AS runs FROM apiary.run r
             WHERE r.queue = p_queue AND r.started_at IS NOT NULL AND r.finished_at IS NULL
               AND r.status <> 'STUCK' GROUP BY 1
        ), candidate AS MATERIALIZED (
            SELECT r.run_id, r.queue_key, r.priority, r.ready_at FROM apiary.run r
             WHERE r.queue = p_queue AND r.ready_at <= p_now AND r.started_at IS NULL
               AND (p_applications IS NULL OR r.application = ANY (p_applications))
               -- A key that is full must not fill the scan.
               AND NOT EXISTS (SELECT FROM active a WHERE a.queue_key = r.queue_key AND a.runs >= p_key_concurrency)
             ORDER BY r.priority, r.ready_at LIMIT 1000 FOR UPDATE SKIP LOCKED
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

-- Runs that were started before and may go on: a wait is over, a lease has ended, an executor drained.
-- They have their places. One whose backend is alive is left to it; one that was adopted too often is
-- put aside.
CREATE OR REPLACE FUNCTION apiary.next_started(
    p_now timestamptz, p_lease interval, p_applications text[], p_queues text[], p_limit integer
) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run record;
BEGIN
    FOR v_run IN
        SELECT r.run_id, r.status, r.in_database, r.adoptions, r.max_adoptions FROM apiary.run r
         WHERE r.ready_at <= p_now AND r.started_at IS NOT NULL
           AND (p_applications IS NULL OR r.application = ANY (p_applications))
           AND (p_queues IS NULL OR r.queue = ANY (p_queues))
         ORDER BY r.ready_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        IF NOT pg_catalog.pg_try_advisory_xact_lock(apiary.in_database_lock(v_run.run_id)) THEN
            -- Something of it is still under way: look again soon.
            UPDATE apiary.run SET ready_at = p_now
                   + CASE v_run.status WHEN 'RUNNING' THEN interval '1 second' ELSE interval '0.1 seconds' END
             WHERE run_id = v_run.run_id;
        ELSIF v_run.status = 'RUNNING' AND v_run.adoptions >= v_run.max_adoptions THEN
            UPDATE apiary.run SET status = 'STUCK', ready_at = NULL, epoch = epoch + 1 WHERE run_id = v_run.run_id;
            PERFORM pg_catalog.pg_notify('apiary_changed', apiary.run_hash(v_run.run_id));
        ELSE
            RETURN NEXT v_run.run_id;
        END IF;
    END LOOP;
END
$body$;

-- Take up to p_limit runs: first those that were started before, then new ones, queue by queue with
-- equal shares (runs without a queue have one, too), so that a backlog of one queue does not delay
-- another; what the shares leave over goes to whoever has more. p_queues NULL: every queue, and none.
CREATE OR REPLACE FUNCTION apiary.claim_runs(
    p_executor text, p_limit integer, p_lease interval, p_applications text[], p_queues text[]
) RETURNS SETOF apiary.run LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_now timestamptz := apiary.clock();
    v_taken text[];
    v_queue apiary.queue;
    v_names text[];
    v_name text;
    v_room integer;
    v_share integer;
    v_found text[];
    v_left boolean := false;  -- whether somebody used up a share, and may have more
BEGIN
    v_taken := apiary.take_runs(p_executor, v_now, p_lease,
        ARRAY(SELECT apiary.next_started(v_now, p_lease, p_applications, p_queues, p_limit)));
    SELECT coalesce(array_agg(q.name ORDER BY pg_catalog.random()), '{}') INTO v_names FROM apiary.queue q
     WHERE (p_queues IS NULL OR q.name = ANY (p_queues)) AND NOT q.paused
       AND EXISTS (SELECT FROM apiary.run r
                    WHERE r.queue = q.name AND r.ready_at <= v_now AND r.started_at IS NULL);
    IF p_queues IS NULL THEN
        v_names := array_append(v_names, NULL);
    END IF;
    v_share := greatest(1, (p_limit - cardinality(v_taken)) / greatest(1, cardinality(v_names)));
    FOR v_pass IN 1..2 LOOP
        FOREACH v_name IN ARRAY v_names LOOP
            EXIT WHEN cardinality(v_taken) >= p_limit;
            v_room := p_limit;
            IF v_name IS NOT NULL THEN
                -- Whoever claims from a queue holds its row, so that limits are counted by one at a time.
                SELECT * INTO v_queue FROM apiary.queue q
                 WHERE q.name = v_name AND NOT q.paused FOR NO KEY UPDATE SKIP LOCKED;
                CONTINUE WHEN NOT FOUND;
                v_room := apiary.queue_room(v_queue, p_executor);
            END IF;
            v_found := ARRAY(SELECT apiary.next_in_queue(v_name, v_queue.key_concurrency, v_now, p_applications,
                least(v_room, v_share, p_limit - cardinality(v_taken))));
            v_taken := v_taken || apiary.take_runs(p_executor, v_now, p_lease, v_found);
            v_left := v_left OR cardinality(v_found) >= v_share;
        END LOOP;
        EXIT WHEN NOT v_left;
        v_share := p_limit;
    END LOOP;
    RETURN QUERY SELECT * FROM apiary.run r WHERE r.run_id = ANY (v_taken);
END
$body$;

-- Give runs to an executor; the caller holds their rows' locks.
CREATE OR REPLACE FUNCTION apiary.take_runs(p_executor text, p_now timestamptz, p_lease interval, p_runs text[])
RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    IF cardinality(p_runs) > 0 THEN
        UPDATE apiary.run r
           SET status = 'RUNNING', executor = p_executor, epoch = r.epoch + 1,
               adoptions = r.adoptions + CASE r.status WHEN 'RUNNING' THEN 1 ELSE 0 END,
               ready_at = p_now + p_lease, started_at = coalesce(r.started_at, p_now)
         WHERE r.run_id = ANY (p_runs);
    END IF;
    RETURN p_runs;
END
$body$;

-- What an executor looks at when it has nothing else to do, in one statement: the database's clock; since
-- when a run waits to be claimed; when the next one may move by time, or a rate limit lets one start; when
-- the next deadline passes and the next schedule is due.
CREATE OR REPLACE FUNCTION apiary.look(
    OUT now timestamptz, OUT ready_at timestamptz, OUT next_ready_at timestamptz, OUT deadline timestamptz,
    OUT schedule_at timestamptz
) LANGUAGE plpgsql STABLE SECURITY DEFINER AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := apiary.clock();
BEGIN
    now := v_now;
    ready_at := (SELECT min(r.ready_at) FROM apiary.run r WHERE r.ready_at <= v_now);
    next_ready_at := least(
        (SELECT min(r.ready_at) FROM apiary.run r WHERE r.ready_at > v_now),
        (SELECT min(s.started_at + q.rate_period) FROM apiary.queue q CROSS JOIN LATERAL (
            SELECT r.started_at FROM apiary.run r
             WHERE r.queue = q.name AND r.started_at > v_now - q.rate_period
             ORDER BY r.started_at DESC OFFSET q.rate_limit - 1 LIMIT 1) s
          WHERE q.rate_limit IS NOT NULL AND NOT q.paused));
    deadline := (SELECT min(r.deadline) FROM apiary.run r
                  WHERE r.deadline IS NOT NULL AND r.finished_at IS NULL AND r.status <> 'STUCK');
    schedule_at := (SELECT min(s.next_at) FROM apiary.schedule s WHERE NOT s.paused);
END
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
        PERFORM pg_catalog.pg_notify('apiary_changed', apiary.run_hash(v_run.run_id));
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$body$;
