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
