-- Workflows that run inside the database: one CALL, a transaction per function.

-- Run, or go on with, a workflow's run in this backend. It commits between functions, so it has
-- neither SECURITY DEFINER nor a SET clause (a procedure with either may not commit): it runs as the
-- runtime role, and what it calls are definers. p_request is a JSON object: what start_run takes, or
-- {run_id, epoch} of a claimed run. The outcome is JSON: {status, output, error, ...}.
--
-- While it runs it holds the run's advisory lock, which dies with the backend: that is its lease.
-- Commits before the last one do not wait for the disk. The log is a prefix: what a crash of the
-- server loses is a suffix, which is executed again.
CREATE OR REPLACE PROCEDURE apiary.run_in_database(p_request json, INOUT p_outcome text)
LANGUAGE plpython3u AS $body$
if "apiary" not in GD:
    plpy.execute("SELECT apiary.boot()")
return (GD["apiary"].run_in_database(p_request),)
$body$;

-- Start a run that its starter holds at once, as nearly every run in the database is started: in no
-- queue, by no other run, with no key but its id. That one is taken fails on the key; apiary.start_run
-- then says by what. Two statements, where that one has to look and to choose.
CREATE OR REPLACE FUNCTION apiary.start_in_database(
    p_run_id text, p_application text, p_deployment text, p_workflow text, p_input json, p_input_digest text,
    p_principal text, p_trace text, p_deadline timestamptz, p_max_adoptions integer, p_executor text,
    p_lease interval
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_now timestamptz := apiary.clock();
BEGIN
    INSERT INTO apiary.operation (run_id, seq, kind, name, application, deployment, principal, status,
                                  input_digest, started_at, finished_at)
    VALUES (p_run_id, 0, 'start', p_workflow, p_application, p_deployment, p_principal, 'SUCCEEDED',
            p_input_digest, v_now, v_now);
    INSERT INTO apiary.run (run_id, application, workflow, deployment, principal, status, in_database, input,
                            input_digest, ready_at, executor, epoch, deadline, max_adoptions, trace,
                            created_at, started_at)
    VALUES (p_run_id, p_application, p_workflow, p_deployment, p_principal, 'RUNNING', true, p_input,
            p_input_digest, v_now + p_lease, p_executor, 1, p_deadline, coalesce(p_max_adoptions, 50), p_trace,
            v_now, v_now);
END
$body$;

-- The end of a run that was started so and has never left: it has a place in no queue, and waits for nothing.
CREATE OR REPLACE FUNCTION apiary.finish_in_database(
    p_run_id text, p_epoch integer, p_status text, p_output json, p_error json, p_calls integer, p_unrecorded json
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $body$
BEGIN
    UPDATE apiary.run
       SET status = p_status, output = p_output, error = p_error, calls = p_calls, unrecorded = p_unrecorded,
           ready_at = NULL, finished_at = apiary.clock()
     WHERE run_id = p_run_id AND epoch = p_epoch AND status = 'RUNNING';
    IF NOT FOUND THEN
        PERFORM apiary.held_run(p_run_id, p_epoch);  -- which says why not
    END IF;
    IF EXISTS (SELECT FROM apiary.waiter w WHERE w.awaited_run_id = p_run_id) THEN
        PERFORM apiary.wake_waiters(p_run_id, '', p_status <> 'SUCCEEDED');
    END IF;
END
$body$;
