-- The roles, and what they may do in this database. Roles belong to the whole server, so they may
-- exist already; run by a superuser, as only a superuser may create PL/Python functions.

DO $body$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['apiary_owner', 'apiary_deployer', 'apiary_runtime', 'apiary_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = v_role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        END IF;
    END LOOP;
    EXECUTE format('GRANT CREATE ON DATABASE %I TO apiary_owner, apiary_deployer', current_database());
END
$body$;
-- The owner's capture functions read the applications' tables; the server runs queries as the reader.
GRANT apiary_reader TO apiary_owner, apiary_runtime;

CREATE EXTENSION IF NOT EXISTS plpython3u;
