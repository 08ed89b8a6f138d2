-- Who may do what. Applied after every change of the functions above.

DO $body$
DECLARE
    v_function regprocedure;
BEGIN
    -- Functions belong to the platform's owner, but for those that must act as a superuser.
    FOR v_function IN
        SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p
         WHERE p.pronamespace = 'apiary'::regnamespace
           AND p.proname NOT IN ('create_application', 'create_domain', 'create_entry', 'application_changed',
                                 'interrupt_in_database')
    LOOP
        EXECUTE format('ALTER ROUTINE %s OWNER TO apiary_owner', v_function);
    END LOOP;
    ALTER VIEW provenance.invocation OWNER TO apiary_owner;
    ALTER VIEW provenance.data_event OWNER TO apiary_owner;
    ALTER VIEW provenance.workflow_overhead OWNER TO apiary_owner;
END
$body$;

REVOKE ALL ON ALL ROUTINES IN SCHEMA apiary FROM PUBLIC;
GRANT EXECUTE ON FUNCTION apiary.interrupt_in_database(text) TO apiary_owner;  -- a superuser's
GRANT USAGE ON SCHEMA apiary, provenance TO apiary_runtime, apiary_deployer, apiary_reader;
GRANT USAGE ON SCHEMA apiary_app TO apiary_deployer;
-- The capture functions' owner places them here; the deployer's triggers execute them.
GRANT CREATE ON SCHEMA apiary_app TO apiary_owner;

GRANT SELECT ON ALL TABLES IN SCHEMA apiary, provenance TO apiary_reader, apiary_deployer, apiary_runtime;

GRANT EXECUTE ON FUNCTION
    apiary.invoke(text, integer, text, text, text, json, text, text, integer, boolean, timestamptz, json),
    apiary.recorded(text, integer, text, text, json),
    apiary.log_attempt(text, integer, integer, text, text, text, text, text, text, json, timestamptz, text),
    apiary.call(text, text, json)
TO apiary_runtime;

-- Runs: everything that executors and the server do.
GRANT EXECUTE ON FUNCTION
    apiary.boot(), apiary.clock(), apiary.run_hash(text), apiary.in_database_lock(text), apiary.look(),
    apiary.start_run(text, text, text, text, boolean, json, text, text, text, text, integer, text, text,
        timestamptz, timestamptz, integer, text, integer, integer, text, interval),
    apiary.record_operations(text, integer, json, json), apiary.park_run(text, integer, json, timestamptz, json),
    apiary.release_run(text, integer, boolean, json),
    apiary.finish_run(text, integer, text, json, json, integer, json),
    apiary.start_in_database(text, text, text, text, json, text, text, text, timestamptz, integer, text, interval),
    apiary.finish_in_database(text, integer, text, json, json, integer, json),
    apiary.renew_leases(text, text[], integer[], interval),
    apiary.claim_runs(text, integer, interval, text[], text[]), apiary.time_out_runs(integer),
    apiary.send(text, text, json, text), apiary.take_message(text, integer, text, integer, json, json),
    apiary.set_event(text, integer, text, json, json),
    apiary.send_from_run(text, integer, json, text, text, json, text), apiary.set_progress(text, integer, json),
    apiary.cancel_run(text, text), apiary.unfinished_family(text), apiary.resume_run(text, timestamptz),
    apiary.fork_run(text, integer, text, text, json, text), apiary.delete_run(text, integer),
    apiary.expired_runs(timestamptz, integer), apiary.delete_queue(text),
    apiary.trim_invocations(timestamptz, timestamptz, integer, boolean),
    apiary.trim_attempts(timestamptz, bigint, integer, boolean),
    apiary.trim_row_changes(timestamptz, bigint, integer, boolean)
TO apiary_runtime;
GRANT EXECUTE ON PROCEDURE apiary.run_in_database(json, text) TO apiary_runtime;
GRANT EXECUTE ON FUNCTION apiary.interrupt_in_database(text) TO apiary_owner;
GRANT INSERT, UPDATE, DELETE ON apiary.queue, apiary.schedule, apiary.executor, apiary.fire TO apiary_runtime;

GRANT EXECUTE ON FUNCTION
    apiary.create_application(text), apiary.create_domain(text, text), apiary.capture_tables(text),
    apiary.capture_table(text, text, text[], boolean), apiary.create_capture_function(text, text, text[]),
    apiary.check_deployment(text, text), apiary.call(text, text, json),
    apiary.invoke(text, integer, text, text, text, json, text, text, integer, boolean, timestamptz, json)
TO apiary_deployer;
GRANT INSERT, UPDATE, DELETE ON
    apiary.application, apiary.deployment, apiary.activation, apiary.module, apiary.function,
    apiary.workflow, apiary.table_script, apiary.captured_table
TO apiary_deployer;

-- What was made for the applications by an earlier version of this code.
SELECT apiary.create_entry(name), apiary.capture_tables(name) FROM apiary.application;
