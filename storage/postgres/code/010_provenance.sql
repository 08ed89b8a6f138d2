-- Provenance: capture triggers, and the views that users query.

-- Make the capture triggers of every table of an application's domains, by its provenance level.
-- Runs as the deployer, who is a member of the application's role and so owns the tables.
-- One trigger function per table: its key columns and its name are constants in it, which is a
-- third of the price of reading them from arguments. Statement-level triggers see all rows of a
-- statement at once; only those of the table that the statement names fire, so partitions have them,
-- too, and log their rows as the whole table's. An UPDATE's rows before and after come in the same order, so they pair by
-- position even when the key itself was changed.
CREATE OR REPLACE FUNCTION apiary.capture_tables(p_application text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $body$
DECLARE
    v_level text;
    v_table record;
BEGIN
    SELECT provenance INTO STRICT v_level FROM apiary.application WHERE name = p_application;
    DELETE FROM apiary.captured_table WHERE application = p_application;
    FOR v_table IN
        SELECT n.nspname AS schema, c.relname AS name, c.relispartition AS is_partition,
               ARRAY(SELECT a.attname::text
                       FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (attnum, position)
                       JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                      WHERE i.indrelid = c.oid AND i.indisprimary
                      ORDER BY k.position) AS key_columns
          FROM apiary.domain d
          JOIN pg_namespace n ON n.nspname = d.name
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p')
         WHERE d.application = p_application
         ORDER BY 1, 2
    LOOP
        IF NOT v_table.is_partition THEN
            INSERT INTO apiary.captured_table (relation, application, key_columns)
            VALUES (v_table.schema || '.' || v_table.name, p_application, v_table.key_columns);
        END IF;
        PERFORM apiary.capture_table(v_table.schema, v_table.name, v_table.key_columns, v_level <> 'off');
    END LOOP;
END
$body$;

CREATE OR REPLACE FUNCTION apiary.capture_table(
    p_schema text, p_table text, p_key_columns text[], p_enabled boolean
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $body$
DECLARE
    v_target text := format('%I.%I', p_schema, p_table);
    v_function text := format('apiary_app.%I', 'capture ' || p_schema || '.' || p_table);
    v_event text;
    v_kind "char" := (SELECT relkind FROM pg_class WHERE oid = v_target::regclass);
BEGIN
    FOREACH v_event IN ARRAY ARRAY['insert', 'update', 'delete', 'truncate'] LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', 'apiary_capture_' || v_event, v_target);
    END LOOP;
    IF NOT p_enabled THEN
        RETURN;
    END IF;
    PERFORM apiary.create_capture_function(p_schema, p_table, p_key_columns);
    EXECUTE format('CREATE TRIGGER apiary_capture_insert AFTER INSERT ON %s '
        'REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION %s()', v_target, v_function);
    EXECUTE format('CREATE TRIGGER apiary_capture_update AFTER UPDATE ON %s '
        'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION %s()',
        v_target, v_function);
    EXECUTE format('CREATE TRIGGER apiary_capture_delete AFTER DELETE ON %s '
        'REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION %s()', v_target, v_function);
    IF v_kind = 'r' THEN  -- truncating a partitioned table fires the triggers of its partitions
        EXECUTE format('CREATE TRIGGER apiary_capture_truncate BEFORE TRUNCATE ON %s '
            'FOR EACH STATEMENT EXECUTE FUNCTION %s()', v_target, v_function);
    END IF;
END
$body$;

-- The log must not depend on the writer's session: where a table has columns whose text does, the
-- trigger function pins those settings (which costs a little, hence not everywhere).
CREATE OR REPLACE FUNCTION apiary.capture_settings(p_relation regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog AS $body$
    SELECT CASE WHEN bool_or(t.typname ~ '^_?(timestamptz|timetz|interval|tstz(multi)?range)$'
                             OR t.typtype IN ('c', 'd'))
                THEN $$ SET timezone = 'UTC' SET intervalstyle = 'iso_8601' SET datestyle = 'ISO'$$
                ELSE '' END
      FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = p_relation AND a.attnum > 0 AND NOT a.attisdropped
$body$;

-- SECURITY DEFINER: only the log's owner may insert into it, so the trigger function belongs to it.
-- A TRUNCATE is logged as one removal per row that it is about to remove.
CREATE OR REPLACE FUNCTION apiary.create_capture_function(
    p_schema text, p_table text, p_key_columns text[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $body$
DECLARE
    v_old_key text;
    v_new_key text;
    v_changed_key text;
    v_table regclass := format('%I.%I', p_schema, p_table)::regclass;
    -- A partition's rows are its whole table's.
    v_root regclass := coalesce(pg_partition_root(v_table), v_table);
BEGIN
    -- Rows are compared by their bytes before their keys are built: few updates change a key.
    SELECT 'pg_catalog.jsonb_build_object(' || string_agg(format('%1$L, o.%1$I', c), ', ' ORDER BY position) || ')',
           'pg_catalog.jsonb_build_object(' || string_agg(format('%1$L, n.%1$I', c), ', ' ORDER BY position) || ')',
           'ROW(' || string_agg(format('o.%I', c), ', ' ORDER BY position) || ')::record OPERATOR(pg_catalog.*<>) '
           'ROW(' || string_agg(format('n.%I', c), ', ' ORDER BY position) || ')::record'
      INTO v_old_key, v_new_key, v_changed_key
      FROM unnest(p_key_columns) WITH ORDINALITY k (c, position);
    v_changed_key := CASE WHEN v_changed_key IS NULL THEN 'NULL'
        ELSE format('CASE WHEN %s THEN nullif(%s, %s) END', v_changed_key, v_new_key, v_old_key) END;
    v_old_key := coalesce(v_old_key, 'NULL::pg_catalog.jsonb');
    v_new_key := coalesce(v_new_key, 'NULL::pg_catalog.jsonb');
    EXECUTE format($template$
CREATE OR REPLACE FUNCTION %1$s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER%6$s AS $trigger$
#variable_conflict use_variable
DECLARE
    v_context text;
    v_statement text;
BEGIN
    GET DIAGNOSTICS v_context = PG_CONTEXT;
    v_statement := pg_catalog.split_part(
        pg_catalog.split_part(v_context, E'\nSQL statement "', 2), E'"\nPL/', 1);
    IF v_statement = '' THEN
        v_statement := pg_catalog.current_query();
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO provenance.write_event (relation, operation, key, after, statement)
        SELECT %2$L, 'I', %3$s, pg_catalog.to_jsonb(n.*), v_statement FROM new_rows n;
    ELSIF TG_OP = 'UPDATE' THEN
        PERFORM FROM new_rows OFFSET 1;
        IF NOT FOUND THEN  -- one row, as nearly always: nothing has to be paired
            INSERT INTO provenance.write_event (relation, operation, key, new_key, before, after, statement)
            SELECT %2$L, 'U', %4$s, %7$s, pg_catalog.to_jsonb(o.*), pg_catalog.to_jsonb(n.*), v_statement
              FROM old_rows o, new_rows n;
            RETURN NULL;
        END IF;
        INSERT INTO provenance.write_event (relation, operation, key, new_key, before, after, statement)
        SELECT %2$L, 'U', x.key, CASE WHEN x.new_key IS DISTINCT FROM x.key THEN x.new_key END,
               x.before, x.after, v_statement
          FROM ROWS FROM (
                   pg_catalog.unnest((SELECT pg_catalog.array_agg(%4$s) FROM old_rows o)),
                   pg_catalog.unnest((SELECT pg_catalog.array_agg(%3$s) FROM new_rows n)),
                   pg_catalog.unnest((SELECT pg_catalog.array_agg(pg_catalog.to_jsonb(o.*)) FROM old_rows o)),
                   pg_catalog.unnest((SELECT pg_catalog.array_agg(pg_catalog.to_jsonb(n.*)) FROM new_rows n))
               ) AS x (key, new_key, before, after);
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO provenance.write_event (relation, operation, key, before, statement)
        SELECT %2$L, 'D', %4$s, pg_catalog.to_jsonb(o.*), v_statement FROM old_rows o;
    ELSE
        INSERT INTO provenance.write_event (relation, operation, key, before, statement)
        SELECT %2$L, 'T', %4$s, pg_catalog.to_jsonb(o.*), v_statement FROM ONLY %5$s o;
    END IF;
    RETURN NULL;
END
$trigger$;
$template$,
        format('apiary_app.%I', 'capture ' || p_schema || '.' || p_table),
        (SELECT n.nspname || '.' || c.relname
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = v_root),
        v_new_key,
        v_old_key,
        format('%I.%I', p_schema, p_table),
        apiary.capture_settings(v_table),
        v_changed_key);
END
$body$;

-- One row per attempt of a function: those that ended in a record, and those that did not.
CREATE OR REPLACE VIEW provenance.invocation AS
SELECT o.run_id, o.seq, o.attempt, o.name AS function, o.application, o.deployment, o.principal,
       o.status, o.error ->> 'type' AS error_type, o.started_at, o.finished_at,
       extract(epoch FROM o.finished_at - o.started_at) * 1000 AS duration_ms,
       o.xid, o.isolation, o.read_only, o.input::jsonb AS input, o.output::jsonb AS output,
       o.error::jsonb AS error, o.calls::jsonb AS calls, o.log, o.trace,
       substring(o.trace, '^[0-9a-f]{2}-([0-9a-f]{32})-') AS trace_id
  FROM apiary.operation o
 WHERE o.kind = 'function'
UNION ALL
SELECT a.run_id, a.seq, a.attempt, a.name, a.application, a.deployment, a.principal,
       a.status, a.error ->> 'type', a.started_at, a.finished_at,
       extract(epoch FROM a.finished_at - a.started_at) * 1000,
       NULL, NULL, NULL, NULL, NULL, a.error::jsonb, NULL, a.log, a.trace,
       substring(a.trace, '^[0-9a-f]{2}-([0-9a-f]{32})-')
  FROM apiary.attempt a
 WHERE a.kind = 'function';
COMMENT ON VIEW provenance.invocation IS
    'one row per attempt of a function; joins provenance.data_event on xid';

-- One row per row written or read. A write that changed a row's key is listed under both keys. A
-- read that found nothing is listed once, with neither key nor row.
CREATE OR REPLACE VIEW provenance.data_event AS
SELECT w.event_id, w.xid, o.run_id, o.seq, w.at, w.relation, w.operation::text AS operation,
       k.key, w.before, w.after, w.statement, NULL::jsonb AS parameters, false AS truncated, w.db_user
  FROM provenance.write_event w
  CROSS JOIN LATERAL (SELECT w.key UNION ALL SELECT w.new_key WHERE w.new_key IS NOT NULL) k (key)
  LEFT JOIN apiary.operation o ON o.xid = w.xid
UNION ALL
SELECT NULL, o.xid, o.run_id, o.seq, o.started_at, relation.name, 'R',
       CASE WHEN row_read.value IS NOT NULL
             AND row_read.value ?& table_read.key_columns AND table_read.key_columns <> '{}'
            THEN (SELECT jsonb_object_agg(c, row_read.value -> c) FROM unnest(table_read.key_columns) c) END,
       NULL, row_read.value, read.value ->> 'statement', read.value -> 'parameters',
       (read.value ->> 'row_count')::bigint > jsonb_array_length(read.value -> 'rows'), NULL
  FROM apiary.operation o
  CROSS JOIN LATERAL jsonb_array_elements(o.reads::jsonb) AS read (value)
  LEFT JOIN LATERAL jsonb_array_elements_text(read.value -> 'relations') AS relation (name) ON true
  LEFT JOIN LATERAL jsonb_array_elements(read.value -> 'rows') AS row_read (value) ON true
  LEFT JOIN apiary.captured_table table_read ON table_read.relation = relation.name
 WHERE o.reads IS NOT NULL;
COMMENT ON VIEW provenance.data_event IS
    'one row per row written (I, U, D, T: truncated) or read (R); writes outside functions have no run_id';
