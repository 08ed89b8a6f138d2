-- Messages, events and streams of runs. Each operation of a workflow is recorded in the transaction
-- of its effect.

CREATE OR REPLACE FUNCTION apiary.send(p_run_id text, p_topic text, p_message json, p_idempotency_key text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    -- The row's lock orders this against park_run: see there.
    PERFORM FROM apiary.run r WHERE r.run_id = p_run_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no run %', p_run_id USING ERRCODE = 'AP006', DETAIL = 'run ' || p_run_id;
    END IF;
    INSERT INTO apiary.mailbox (run_id, topic, message, idempotency_key)
    VALUES (p_run_id, p_topic, p_message, p_idempotency_key) ON CONFLICT (idempotency_key) DO NOTHING;
    IF FOUND THEN
        PERFORM apiary.wake_run(p_run_id)
           FROM apiary.run r
          WHERE r.run_id = p_run_id AND r.status = 'WAITING'
            AND r.waiting_for ->> 'kind' = 'message' AND r.waiting_for ->> 'topic' = p_topic;
    END IF;
END
$body$;

-- Take the oldest message of a topic and record the recv operation with it. NULL: there is none.
CREATE OR REPLACE FUNCTION apiary.take_message(
    p_run_id text, p_epoch integer, p_topic text, p_seq integer, p_operation json, p_deferred json
) RETURNS json LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_run apiary.run := apiary.held_run(p_run_id, p_epoch);
    v_message json;
BEGIN
    UPDATE apiary.mailbox m SET taken_by_seq = p_seq
     WHERE m.id = (SELECT o.id FROM apiary.mailbox o
                    WHERE o.run_id = p_run_id AND o.topic = p_topic AND o.taken_by_seq IS NULL
                    ORDER BY o.id LIMIT 1)
    RETURNING m.message INTO v_message;
    IF FOUND THEN
        v_message := json_build_object('message', v_message);
        PERFORM apiary.insert_operations(v_run.run_id, v_run.application, v_run.deployment, v_run.principal,
            v_run.trace, p_deferred);
        -- Not through jsonb, which would put the message's keys into another order.
        PERFORM apiary.insert_operations(v_run.run_id, v_run.application, v_run.deployment, v_run.principal,
            v_run.trace, json_build_array(json_build_object(
                'seq', p_operation -> 'seq', 'kind', p_operation -> 'kind', 'name', p_operation -> 'name',
                'output', v_message, 'started_at', p_operation -> 'started_at',
                'finished_at', p_operation -> 'finished_at')));
    END IF;
    RETURN v_message;
END
$body$;

CREATE OR REPLACE FUNCTION apiary.set_event(
    p_run_id text, p_epoch integer, p_key text, p_value json, p_operations json
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    PERFORM apiary.record_operations(p_run_id, p_epoch, p_operations, NULL);
    INSERT INTO apiary.event (run_id, key, value) VALUES (p_run_id, p_key, p_value)
    ON CONFLICT (run_id, key) DO UPDATE SET value = excluded.value, set_at = pg_catalog.clock_timestamp();
    PERFORM apiary.wake_waiters(p_run_id, 'event ' || p_key, false);
    PERFORM pg_catalog.pg_notify('apiary_changed', apiary.run_hash(p_run_id));
END
$body$;

-- A send from a workflow: the message and the operation in one transaction.
CREATE OR REPLACE FUNCTION apiary.send_from_run(
    p_run_id text, p_epoch integer, p_operations json, p_to_run_id text, p_topic text, p_message json, p_key text
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    PERFORM apiary.record_operations(p_run_id, p_epoch, p_operations, NULL);
    PERFORM apiary.send(p_to_run_id, p_topic, p_message, p_key);
END
$body$;

CREATE OR REPLACE FUNCTION apiary.set_progress(p_run_id text, p_epoch integer, p_progress json) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    UPDATE apiary.run SET progress = p_progress
     WHERE run_id = p_run_id AND epoch = p_epoch AND status = 'RUNNING';
    IF FOUND THEN
        PERFORM pg_catalog.pg_notify('apiary_changed', apiary.run_hash(p_run_id));
    END IF;
END
$body$;
