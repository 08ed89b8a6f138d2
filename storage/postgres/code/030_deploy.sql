-- What deploying needs beyond inserting rows.

-- The entry function of an application: its functions' bodies run in it. It is SECURITY DEFINER and
-- owned by the application's role, which is what confines a function's SQL to its application's
-- tables. It hands over what serves new calls (deployment and provenance level): to learn that here
-- costs a call nothing, a look-up would cost it a statement. The runtime enters it from sessions with
-- a search_path that is pinned (runtime/environment.py). For a superuser: only one may create a PL/Python
-- function.
CREATE OR REPLACE FUNCTION apiary.create_entry(p_application text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    v_application apiary.application;
    v_exists boolean := to_regprocedure(format('apiary_app.%I()', p_application)) IS NOT NULL;
BEGIN
    SELECT * INTO STRICT v_application FROM apiary.application WHERE name = p_application;
    EXECUTE format($entry$
        CREATE OR REPLACE FUNCTION apiary_app.%I() RETURNS void LANGUAGE plpython3u SECURITY DEFINER
        AS $python$GD["apiary"].run_pending(%s)$python$
    $entry$, p_application, to_json(concat_ws(' ', v_application.current, v_application.provenance)));
    IF NOT v_exists THEN
        EXECUTE format('ALTER FUNCTION apiary_app.%I() OWNER TO %I', p_application, v_application.role);
        EXECUTE format('REVOKE ALL ON FUNCTION apiary_app.%I() FROM PUBLIC', p_application);
        EXECUTE format('GRANT EXECUTE ON FUNCTION apiary_app.%I() TO apiary_owner', p_application);
    END IF;
END
$body$;

-- SECURITY DEFINER for the same reason.
CREATE OR REPLACE FUNCTION apiary.application_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    PERFORM apiary.create_entry(NEW.name);
    RETURN NULL;
END
$body$;
CREATE OR REPLACE TRIGGER application_changed AFTER INSERT OR UPDATE OF current, provenance ON apiary.application
    FOR EACH ROW EXECUTE FUNCTION apiary.application_changed();

-- Create an application on its first deploy, and its role.
-- SECURITY DEFINER, owned by the installing superuser: roles are its to make.
CREATE OR REPLACE FUNCTION apiary.create_application(p_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    v_role name := 'apiary_app_' || p_name;
BEGIN
    IF p_name !~ '^[a-z][a-z0-9_]{0,39}$' THEN
        RAISE EXCEPTION 'application name % is not usable', quote_literal(p_name) USING ERRCODE = '22023';
    END IF;
    IF EXISTS (SELECT FROM apiary.application WHERE name = p_name) THEN
        RETURN;
    END IF;
    BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- another database of this server has an application of the same name
    END;
    IF NOT pg_has_role('apiary_deployer', v_role, 'MEMBER') THEN
        EXECUTE format('GRANT %I TO apiary_deployer', v_role);
    END IF;
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO %I', current_database(), v_role);
    INSERT INTO apiary.application (name, role) VALUES (p_name, v_role);
END
$body$;

-- The schema of a domain, owned by the application's role and readable by the reader.
-- SECURITY DEFINER for the same reason: the deployer need not own the database.
CREATE OR REPLACE FUNCTION apiary.create_domain(p_application text, p_domain text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    v_role name;
    v_holder text;
BEGIN
    SELECT role INTO STRICT v_role FROM apiary.application WHERE name = p_application;
    SELECT application INTO v_holder FROM apiary.domain WHERE name = p_domain;
    IF v_holder = p_application THEN
        RETURN;
    ELSIF v_holder IS NOT NULL THEN
        RAISE EXCEPTION 'schema % belongs to application %', p_domain, v_holder USING ERRCODE = '42P06';
    ELSIF EXISTS (SELECT FROM pg_namespace WHERE nspname = p_domain) THEN
        RAISE EXCEPTION 'schema % exists and belongs to no application', p_domain USING ERRCODE = '42P06';
    END IF;
    EXECUTE format('CREATE SCHEMA %I AUTHORIZATION %I', p_domain, v_role);
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO apiary_reader', p_domain);
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %I GRANT SELECT ON TABLES TO apiary_reader',
                   v_role, p_domain);
    INSERT INTO apiary.domain (name, application) VALUES (p_domain, p_application);
END
$body$;

-- A function that plain SQL can call: its parameters have SQL types, and the call is recorded like
-- any other, in the caller's transaction.
CREATE OR REPLACE FUNCTION apiary.call(p_application text, p_function text, p_input json) RETURNS json
LANGUAGE plpgsql AS $body$
DECLARE
    v_outcome json := apiary.invoke(pg_catalog.gen_random_uuid()::text, 0, p_application, NULL, p_function,
                                    p_input, session_user::text, NULL, 1, true, NULL, NULL);
BEGIN
    IF v_outcome ->> 'error' IS NOT NULL THEN
        RAISE EXCEPTION '%: %', v_outcome #>> '{error,type}', v_outcome #>> '{error,message}'
            USING ERRCODE = 'AP008', DETAIL = v_outcome ->> 'error';
    END IF;
    RETURN v_outcome -> 'output';
END
$body$;
