-- Invoking a function. The Python functions here are stubs: what they do is in runtime/.
--
-- They are SECURITY DEFINER (the platform's owner writes the record) without a pinned search_path,
-- because every name in the runtime's statements is qualified and who may execute them may create
-- nothing that could be found instead. A SET clause would cost each call more than it guards.

-- Load the runtime into this backend. GD is what PL/Python functions of one backend share.
CREATE OR REPLACE FUNCTION apiary.boot() RETURNS void LANGUAGE plpython3u SECURITY DEFINER AS $body$
if "apiary" not in GD:
    rows = plpy.execute("SELECT name, source, is_package, bytecode, magic FROM apiary.runtime_module")
    namespace = {"__name__": "apiary_boot"}
    exec(next(row["source"] for row in rows if row["name"] == "apiary_runtime.boot"), namespace)
    GD["apiary"] = namespace["boot"](rows)
$body$;

-- Compile the runtime with this server's Python, once for all backends.
CREATE OR REPLACE FUNCTION apiary.compile_runtime() RETURNS void LANGUAGE plpython3u SECURITY DEFINER AS $body$
import importlib.util
import marshal
update = plpy.prepare("UPDATE apiary.runtime_module SET bytecode = $1, magic = $2 WHERE name = $3",
                      ["bytea", "bytea", "text"])
for row in plpy.execute("SELECT name, source FROM apiary.runtime_module"):
    code = compile(row["source"], "<" + row["name"] + ">", "exec", dont_inherit=True)
    plpy.execute(update, [marshal.dumps(code), importlib.util.MAGIC_NUMBER, row["name"]])
$body$;

-- Run a function and record it, in one transaction: its body, then one row. The caller commits.
CREATE OR REPLACE FUNCTION apiary.invoke(
    p_run_id text,
    p_seq integer,
    p_application text,
    p_deployment text,          -- NULL: the application's current one
    p_function text,
    p_input json,
    p_principal text,
    p_trace text,
    p_attempt integer,
    p_keep boolean,             -- false: a read-only function need not be recorded
    p_lease_until timestamptz,  -- NULL: no lease; else refused when the database's clock is past it
    p_deferred json             -- the run's read-only calls before, to be recorded with this one
) RETURNS text LANGUAGE plpython3u SECURITY DEFINER AS $body$
if "apiary" not in GD:
    plpy.execute("SELECT apiary.boot()")
return GD["apiary"].invoke(p_run_id, p_seq, p_application, p_deployment, p_function, p_input,
                           p_principal, p_trace, p_attempt, p_keep, p_lease_until, p_deferred)
$body$;

-- The recorded outcome of an operation, or NULL when there is none. Refuses another function or input
-- than the recorded ones. For a READ COMMITTED statement of its own, before invoking.
CREATE OR REPLACE FUNCTION apiary.recorded(
    p_run_id text, p_seq integer, p_application text, p_function text, p_input json
) RETURNS text LANGUAGE plpython3u SECURITY DEFINER AS $body$
if "apiary" not in GD:
    plpy.execute("SELECT apiary.boot()")
return GD["apiary"].recorded(p_run_id, p_seq, p_application, p_function, p_input)
$body$;

-- What deploy asks for: import every function's module and prepare every statement.
CREATE OR REPLACE FUNCTION apiary.check_deployment(p_application text, p_deployment text)
RETURNS void LANGUAGE plpython3u SECURITY DEFINER AS $body$
if "apiary" not in GD:
    plpy.execute("SELECT apiary.boot()")
GD["apiary"].check_deployment(p_application, p_deployment)
$body$;

-- Log an attempt that left no record of its own.
CREATE OR REPLACE FUNCTION apiary.log_attempt(
    p_run_id text, p_seq integer, p_attempt integer, p_kind text, p_name text, p_application text,
    p_deployment text, p_principal text, p_status text, p_error json, p_started_at timestamptz, p_trace text
) RETURNS void LANGUAGE sql SECURITY DEFINER AS $body$
    INSERT INTO apiary.attempt (run_id, seq, attempt, kind, name, application, deployment, principal,
                                status, error, started_at, trace)
    VALUES (p_run_id, p_seq, p_attempt, p_kind, p_name, p_application,
            coalesce(p_deployment, (SELECT current FROM apiary.application WHERE name = p_application)),
            p_principal, p_status, p_error, p_started_at, p_trace)
$body$;
