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

-- The page after p_pages more of a table; NULL at its end.
CREATE OR REPLACE FUNCTION apiary.page_after(p_table regclass, p_from bigint, p_pages integer) RETURNS bigint
LANGUAGE sql STABLE AS $body$
    SELECT CASE WHEN p_from + p_pages < pg_catalog.pg_relation_size(p_table)
                                        / pg_catalog.current_setting('block_size')::bigint
                THEN p_from + p_pages END
$body$;

-- Attempts of direct invocations that ended before p_before, in p_pages pages. Those of a run go with the
-- run: how often a step has failed is counted by them.
CREATE OR REPLACE FUNCTION apiary.trim_attempts(
    p_before timestamptz, p_from bigint, p_pages integer, p_delete boolean,
    OUT trimmed bigint, OUT next_from bigint
) LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $body$
DECLARE
    v_page bigint := coalesce(p_from, 0);
    v_first tid := format('(%s,0)', v_page);
    v_end tid := format('(%s,0)', v_page + p_pages);
    v_rows tid[];
BEGIN
    next_from := apiary.page_after('apiary.attempt', v_page, p_pages);
    v_rows := ARRAY(
        SELECT a.ctid FROM apiary.attempt a
         WHERE a.ctid >= v_first AND a.ctid < v_end AND a.finished_at < p_before
           AND NOT EXISTS (SELECT FROM apiary.run r WHERE r.run_id = a.run_id OFFSET 0));
    trimmed := pg_catalog.cardinality(v_rows);
    IF p_delete THEN
        DELETE FROM apiary.attempt WHERE ctid = ANY (v_rows);
        GET DIAGNOSTICS trimmed = ROW_COUNT;
    END IF;
END
$body$;

-- Row changes from before p_before, in p_pages pages: those of invocations and of ended runs that are kept,
-- too, as nothing but questions depends on them. Those of unfinished runs stay.
CREATE OR REPLACE FUNCTION apiary.trim_row_changes(
    p_before timestamptz, p_from bigint, p_pages integer, p_delete boolean,
    OUT trimmed bigint, OUT next_from bigint
) LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $body$
DECLARE
    v_page bigint := coalesce(p_from, 0);
    v_first tid := format('(%s,0)', v_page);
    v_end tid := format('(%s,0)', v_page + p_pages);
    v_rows tid[];
BEGIN
    next_from := apiary.page_after('provenance.write_event', v_page, p_pages);
    v_rows := ARRAY(
        SELECT w.ctid FROM provenance.write_event w
         WHERE w.ctid >= v_first AND w.ctid < v_end AND w.at < p_before
           AND NOT EXISTS (
               SELECT FROM apiary.operation o WHERE o.xid = w.xid AND EXISTS (
                   SELECT FROM apiary.run r WHERE r.run_id = o.run_id AND r.finished_at IS NULL OFFSET 0)
               OFFSET 0));
    trimmed := pg_catalog.cardinality(v_rows);
    IF p_delete THEN
        DELETE FROM provenance.write_event WHERE ctid = ANY (v_rows);
        GET DIAGNOSTICS trimmed = ROW_COUNT;
    END IF;
END
$body$;
