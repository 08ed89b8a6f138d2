-- A plan's cells, a row for all micro-batches of one home pipeline in one stage, as arrays.
--
-- A row for each operation, with its image in the log, takes the database nine times as long.
-- recycle.op, which has those, is a view now.

CREATE TABLE recycle.cells (
    plan_id              bigint NOT NULL REFERENCES recycle.plan,
    stage                int NOT NULL CHECK (stage >= 0),
    home                 int NOT NULL CHECK (home >= 0),            -- the micro-batches' own pipeline
    -- How long each of them takes.
    forward_us           bigint NOT NULL CHECK (forward_us > 0),
    input_grad_us        bigint NOT NULL CHECK (input_grad_us > 0),
    weight_grad_us       bigint NOT NULL CHECK (weight_grad_us > 0),
    -- Of each of them, from micro-batch 0 on.
    executor             int[] NOT NULL CHECK (0 <= ALL (executor)),  -- pipeline of its worker
    forward_start_us     bigint[] NOT NULL CHECK (0 <= ALL (forward_start_us)),
    input_grad_start_us  bigint[] NOT NULL CHECK (0 <= ALL (input_grad_start_us)),
    weight_grad_start_us bigint[] NOT NULL CHECK (0 <= ALL (weight_grad_start_us)),
    PRIMARY KEY (plan_id, stage, home),
    CHECK (cardinality(executor) > 0
           AND cardinality(forward_start_us) = cardinality(executor)
           AND cardinality(input_grad_start_us) = cardinality(executor)
           AND cardinality(weight_grad_start_us) = cardinality(executor)),
    CHECK (array_position(executor, NULL) IS NULL
           AND array_position(forward_start_us, NULL) IS NULL
           AND array_position(input_grad_start_us, NULL) IS NULL
           AND array_position(weight_grad_start_us, NULL) IS NULL)
);

ALTER TABLE recycle.op RENAME TO op_before_cells;

CREATE VIEW recycle.op AS
SELECT c.plan_id, m.pipeline, c.stage, 'F'::text AS op, c.home, (m.number - 1)::int AS micro_batch,
       m.start_us, m.start_us + c.forward_us AS end_us
  FROM recycle.cells c, unnest(c.executor, c.forward_start_us)
       WITH ORDINALITY AS m (pipeline, start_us, number)
UNION ALL
SELECT c.plan_id, m.pipeline, c.stage, 'I', c.home, (m.number - 1)::int,
       m.start_us, m.start_us + c.input_grad_us
  FROM recycle.cells c, unnest(c.executor, c.input_grad_start_us)
       WITH ORDINALITY AS m (pipeline, start_us, number)
UNION ALL
SELECT c.plan_id, m.pipeline, c.stage, 'W', c.home, (m.number - 1)::int,
       m.start_us, m.start_us + c.weight_grad_us
  FROM recycle.cells c, unnest(c.executor, c.weight_grad_start_us)
       WITH ORDINALITY AS m (pipeline, start_us, number);

-- Stored plans come along. What was left of plans that were never finished does not: a run of
-- recycle.plan that is under way meanwhile fails, and has to be started again.
INSERT INTO recycle.cells
SELECT plan_id, stage, home,
       min(end_us - start_us) FILTER (WHERE op = 'F'),
       min(end_us - start_us) FILTER (WHERE op = 'I'),
       min(end_us - start_us) FILTER (WHERE op = 'W'),
       array_agg(pipeline ORDER BY micro_batch) FILTER (WHERE op = 'F'),
       array_agg(start_us ORDER BY micro_batch) FILTER (WHERE op = 'F'),
       array_agg(start_us ORDER BY micro_batch) FILTER (WHERE op = 'I'),
       array_agg(start_us ORDER BY micro_batch) FILTER (WHERE op = 'W')
  FROM recycle.op_before_cells JOIN recycle.plan USING (plan_id)
 WHERE sealed
 GROUP BY plan_id, stage, home;

DO $$
DECLARE
    v_changed bigint[];
BEGIN
    SELECT array_agg(DISTINCT plan_id) INTO v_changed FROM (
        SELECT o.* FROM recycle.op_before_cells o JOIN recycle.plan USING (plan_id) WHERE sealed
        EXCEPT SELECT * FROM recycle.op
    ) lost;
    IF v_changed IS NOT NULL THEN
        RAISE EXCEPTION 'the operations of plans % are not as recycle.plan writes them', v_changed
            USING HINT = 'recycle.validate says what is wrong with them; remove these plans first';
    END IF;
END $$;

DROP TABLE recycle.op_before_cells;

ALTER FUNCTION recycle.refuse_op_change() RENAME TO refuse_cell_change;

CREATE TRIGGER cells_are_not_added AFTER INSERT ON recycle.cells
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION recycle.refuse_cell_change();
CREATE TRIGGER cells_are_not_changed AFTER UPDATE ON recycle.cells
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION recycle.refuse_cell_change();
CREATE TRIGGER cells_are_not_removed AFTER DELETE ON recycle.cells
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION recycle.refuse_cell_change();
