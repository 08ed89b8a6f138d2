-- Trimming the log: direct invocations, attempts and row changes from before a time.
--
-- Each function looks at one batch from a position on (NULL: the beginning), deletes what may go, or
-- only counts it, and says where the next batch begins; NULL after the last one. A row is so looked at
-- once in a trimming, however much is kept and however much has just been deleted before it.
--
-- Invocations are found by the index on their start. The other tables are read through, some pages a
-- batch, as they have no index on time and should have none: each invocation would pay for it, and a
-- BRIN index finds nothing any more once new rows have taken the places of those that were trimmed.
--
-- What a batch depends on is looked up row by row: OFFSET 0 keeps the planner from joining instead, for
-- which it would read all the operations of unfinished runs, each batch anew.

-- Direct invocations that ended before p_before, of about p_limit operations. What belongs to a run, its
-- guard included, goes with the run: apiary.delete_run.
CREATE OR REPLACE FUNCTION apiary.trim_invocations(
    p_before timestamptz, p_from timestamptz, p_limit integer, p_delete boolean,
    OUT trimmed bigint, OUT next_from timestamptz
) LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $body$
DECLARE
    v_from timestamptz := coalesce(p_from, '-infinity');
    v_rows tid[];
BEGIN
    -- Whatever ended before a time began before it.
    SELECT o.started_at INTO next_from FROM apiary.operation o
     WHERE o.started_at >= v_from AND o.started_at < p_before
     ORDER BY o.started_at OFFSET p_limit LIMIT 1;
    IF next_from = v_from THEN  -- calls of one transaction began at one time: they go together
        next_from := v_from + interval '1 microsecond';
    END IF;
    v_rows := ARRAY(
        SELECT o.ctid FROM apiary.operation o
         WHERE o.started_at >= v_from AND o.started_at < coalesce(next_from, p_before)
           AND o.finished_at < p_before AND o.seq = 0 AND o.kind = 'function');
    trimmed := pg_catalog.cardinality(v_rows);
    IF p_delete THEN
        DELETE FROM apiary.operation WHERE ctid = ANY (v_rows);
        GET DIAGNOSTICS trimmed = ROW_COUNT;
    END IF;
END
$body$;

-- The rows of p_pages pages of a table for which a condition on t holds, in which $1 is p_before. Not for
-- anybody but the functions below: the condition is executed as it stands.
CREATE OR REPLACE FUNCTION apiary.trim_pages(
    p_table regclass, p_condition text, p_before timestamptz, p_from bigint, p_pages integer, p_delete boolean,
    OUT trimmed bigint, OUT next_from bigint
) LANGUAGE plpgsql SET enable_seqscan = off AS $body$
DECLARE
    v_page bigint := coalesce(p_from, 0);
    v_end bigint := v_page + p_pages;
    v_rows tid[];
BEGIN
    next_from := CASE WHEN v_end < pg_catalog.pg_relation_size(p_table)
                                   / pg_catalog.current_setting('block_size')::bigint THEN v_end END;
    EXECUTE format('SELECT ARRAY(SELECT t.ctid FROM %s t WHERE t.ctid >= $2 AND t.ctid < $3 AND %s)',
                   p_table, p_condition)
       INTO v_rows USING p_before, format('(%s,0)', v_page)::tid, format('(%s,0)', v_end)::tid;
    trimmed := pg_catalog.cardinality(v_rows);
    IF p_delete THEN
        EXECUTE format('DELETE FROM %s WHERE ctid = ANY ($1)', p_table) USING v_rows;
        GET DIAGNOSTICS trimmed = ROW_COUNT;
    END IF;
END
$body$;

-- Attempts of direct invocations that ended before p_before, in p_pages pages. Those of a run go with the
-- run: how often a step has failed is counted by them.
CREATE OR REPLACE FUNCTION apiary.trim_attempts(
    p_before timestamptz, p_from bigint, p_pages integer, p_delete boolean,
    OUT trimmed bigint, OUT next_from bigint
) LANGUAGE sql SECURITY DEFINER AS $body$
    SELECT * FROM apiary.trim_pages('apiary.attempt', $condition$
        t.finished_at < $1 AND NOT EXISTS (SELECT FROM apiary.run r WHERE r.run_id = t.run_id OFFSET 0)
    $condition$, p_before, p_from, p_pages, p_delete)
$body$;

-- Row changes from before p_before, in p_pages pages: those of invocations and of ended runs that are kept,
-- too, as nothing but questions depends on them. Those of unfinished runs stay.
CREATE OR REPLACE FUNCTION apiary.trim_row_changes(
    p_before timestamptz, p_from bigint, p_pages integer, p_delete boolean,
    OUT trimmed bigint, OUT next_from bigint
) LANGUAGE sql SECURITY DEFINER AS $body$
    SELECT * FROM apiary.trim_pages('provenance.write_event', $condition$
        t.at < $1 AND NOT EXISTS (
            SELECT FROM apiary.operation o WHERE o.xid = t.xid AND EXISTS (
                SELECT FROM apiary.run r WHERE r.run_id = o.run_id AND r.finished_at IS NULL OFFSET 0)
            OFFSET 0)
    $condition$, p_before, p_from, p_pages, p_delete)
$body$;
