-- The roles, and what they may do in this database. Roles belong to the whole server, so they may
-- exist already; run by a superuser, as only a superuser may create PL/Python functions.

DO $body$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['apiary_owner', 'apiary_deployer', 'apiary_runtime', 'apiary_reader'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- unique_violation: another database's installation made it at this moment
        END;
    END LOOP;
    -- The owner's capture functions read the applications' tables; the server queries as the reader.
    FOREACH v_role IN ARRAY ARRAY['apiary_owner', 'apiary_runtime'] LOOP
        IF NOT pg_catalog.pg_has_role(v_role, 'apiary_reader', 'MEMBER') THEN
            EXECUTE format('GRANT apiary_reader TO %I', v_role);
        END IF;
    END LOOP;
    -- A login of the runtime or the reader creates nothing, no temporary tables either.
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO apiary_owner, apiary_deployer', current_database());
    EXECUTE format('GRANT CREATE ON DATABASE %I TO apiary_owner, apiary_deployer', current_database());
END
$body$;

CREATE EXTENSION IF NOT EXISTS plpython3u;
