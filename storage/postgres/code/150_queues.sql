-- Queues: their end. Making and changing one is an INSERT or UPDATE of its row.

-- Delete a queue; refused while unfinished runs or schedules are in it. Its ended runs keep its name.
-- The row's lock comes first: a start that is under way is waited for, a later one finds no queue.
CREATE OR REPLACE FUNCTION apiary.delete_queue(p_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $body$
DECLARE
    v_runs bigint;
    v_schedules text;
BEGIN
    PERFORM FROM apiary.queue q WHERE q.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no queue %', p_name USING ERRCODE = 'AP006', DETAIL = 'queue ' || p_name;
    END IF;
    SELECT count(*) INTO v_runs FROM apiary.run r WHERE r.queue = p_name AND r.finished_at IS NULL;
    SELECT string_agg(s.name, ', ' ORDER BY s.name) INTO v_schedules FROM apiary.schedule s WHERE s.queue = p_name;
    IF v_runs > 0 THEN
        RAISE EXCEPTION 'queue % has % unfinished runs', p_name, v_runs USING ERRCODE = 'AP005', DETAIL = p_name,
            HINT = 'let them end, or cancel them';
    ELSIF v_schedules IS NOT NULL THEN
        RAISE EXCEPTION 'queue % is used by schedule %', p_name, v_schedules USING ERRCODE = 'AP005',
            DETAIL = p_name, HINT = 'delete the schedule first, or give it another queue';
    END IF;
    DELETE FROM apiary.queue WHERE name = p_name;
END
$body$;
