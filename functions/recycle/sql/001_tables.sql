-- Profiles of training jobs, plans for their failures, and what jobs did with them.
--
-- Times are whole microseconds, memory whole bytes. A worker is (pipeline, stage), both from 0.
-- run_id is the workflow run that wrote a row.

CREATE TABLE recycle.profile (
    profile_id text PRIMARY KEY CHECK (profile_id <> ''),
    source     text NOT NULL CHECK (source IN ('samples', 'layers')),
    stages     int NOT NULL CHECK (stages > 0),
    run_id     text NOT NULL
);

CREATE TABLE recycle.stage_profile (
    profile_id text NOT NULL REFERENCES recycle.profile,
    stage      int NOT NULL CHECK (stage >= 0),
    operation  text NOT NULL CHECK (operation IN
                   ('forward', 'input_grad', 'weight_grad', 'transfer', 'all_reduce', 'optimizer')),
    median_us  bigint NOT NULL CHECK (median_us >= 0),  -- plans are made with this
    p95_us     bigint NOT NULL CHECK (p95_us >= 0),
    samples    int NOT NULL CHECK (samples > 0),
    PRIMARY KEY (profile_id, stage, operation)
);

CREATE TABLE recycle.stage_memory (
    profile_id        text NOT NULL REFERENCES recycle.profile,
    stage             int NOT NULL CHECK (stage >= 0),
    limit_bytes       bigint NOT NULL CHECK (limit_bytes >= 0),
    static_bytes      bigint NOT NULL CHECK (static_bytes >= 0),
    forward_bytes     bigint NOT NULL CHECK (forward_bytes >= 0),
    input_grad_bytes  bigint NOT NULL,
    weight_grad_bytes bigint NOT NULL,
    PRIMARY KEY (profile_id, stage),
    CHECK (forward_bytes + input_grad_bytes + weight_grad_bytes = 0)
);

CREATE TABLE recycle.plan_set (
    plan_set_id   text PRIMARY KEY CHECK (plan_set_id <> ''),
    profile_id    text NOT NULL REFERENCES recycle.profile,
    pipelines     int NOT NULL CHECK (pipelines > 0),
    stages        int NOT NULL CHECK (stages > 0),
    micro_batches int NOT NULL CHECK (micro_batches > 0),
    f_max         int NOT NULL CHECK (f_max BETWEEN 0 AND stages * (pipelines - 1)),
    objective     text NOT NULL CHECK (objective IN ('sync', 'stagger')),
    split         bool NOT NULL,
    engine        text NOT NULL CHECK (engine IN ('auto', 'greedy', 'cpsat', 'highs')),
    time_limit_s  float8 NOT NULL CHECK (time_limit_s > 0),
    seed          int NOT NULL CHECK (seed >= 0),
    scope         text NOT NULL CHECK (scope IN ('normalized', 'counts')),
    job           jsonb NOT NULL,                       -- times and memory of every stage
    run_id        text NOT NULL
);

-- A plan is written in portions, becomes visible to all readers when it is sealed, and is then
-- never changed.
CREATE TABLE recycle.plan (
    plan_id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    plan_set_id       text NOT NULL REFERENCES recycle.plan_set,
    plan_key          text NOT NULL,                    -- stagger:split:0-0-1-0
    counts            int[] NOT NULL,                   -- dead workers in each stage
    failures          int NOT NULL CHECK (failures >= 0),
    sealed            bool NOT NULL,
    iteration_us      bigint CHECK (iteration_us > 0),
    makespan_us       bigint CHECK (makespan_us > 0),
    lower_bound_us    bigint CHECK (lower_bound_us > 0),
    in_order_bound_us bigint,
    status            text CHECK (status IN ('optimal', 'optimal_in_order', 'heuristic')),
    engine            text CHECK (engine IN ('greedy', 'cpsat', 'highs')),
    solver_seed       int,
    wall_ms           bigint CHECK (wall_ms >= 0),
    gap               float8 GENERATED ALWAYS AS
                          ((iteration_us - lower_bound_us)::float8 / lower_bound_us) STORED,
    run_id            text NOT NULL,
    CHECK (iteration_us >= lower_bound_us),
    CHECK (NOT sealed OR (iteration_us IS NOT NULL AND makespan_us IS NOT NULL
                          AND lower_bound_us IS NOT NULL AND status IS NOT NULL
                          AND engine IS NOT NULL AND wall_ms IS NOT NULL))
);
CREATE UNIQUE INDEX plan_key_idx ON recycle.plan (plan_set_id, plan_key) WHERE sealed;

CREATE TABLE recycle.op (
    plan_id       bigint NOT NULL REFERENCES recycle.plan,
    pipeline      int NOT NULL CHECK (pipeline >= 0),   -- of the worker that executes it
    stage         int NOT NULL CHECK (stage >= 0),
    op            text NOT NULL CHECK (op IN ('F', 'I', 'W')),
    home          int NOT NULL CHECK (home >= 0),       -- the micro-batch's own pipeline
    micro_batch   int NOT NULL CHECK (micro_batch >= 0),
    start_us      bigint NOT NULL CHECK (start_us >= 0),
    end_us        bigint NOT NULL,
    PRIMARY KEY (plan_id, stage, home, micro_batch, op),
    CHECK (end_us > start_us)
);

CREATE FUNCTION recycle.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'plan % is stored: plans are not changed', OLD.plan_id
        USING HINT = 'make another plan set', ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER plan_is_immutable BEFORE UPDATE OR DELETE ON recycle.plan
    FOR EACH ROW WHEN (OLD.sealed) EXECUTE FUNCTION recycle.refuse_change();

-- Operations belong to a plan that is not sealed yet, or stay as they are.
CREATE FUNCTION recycle.refuse_op_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM recycle.plan p JOIN changed USING (plan_id) WHERE p.sealed) THEN
        RAISE EXCEPTION 'a stored plan is not changed'
            USING HINT = 'make another plan set', ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER op_is_not_added AFTER INSERT ON recycle.op
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION recycle.refuse_op_change();
CREATE TRIGGER op_is_not_changed AFTER UPDATE ON recycle.op
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION recycle.refuse_op_change();
CREATE TRIGGER op_is_not_removed AFTER DELETE ON recycle.op
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION recycle.refuse_op_change();

CREATE TABLE recycle.job (
    job_id              text PRIMARY KEY CHECK (job_id <> ''),
    plan_set_id         text NOT NULL REFERENCES recycle.plan_set,
    expected_iterations float8 NOT NULL CHECK (expected_iterations >= 0),
    copy_us             float8 NOT NULL CHECK (copy_us >= 0),
    allow_moves         bool NOT NULL,
    epoch               int NOT NULL CHECK (epoch >= 0),   -- for compare-and-set
    phase               text NOT NULL CHECK (phase IN ('running', 'switching', 'stopped')),
    iteration           int NOT NULL CHECK (iteration >= 0),
    attempt             int NOT NULL CHECK (attempt >= 0),
    counts              int[] NOT NULL,
    plan_key            text CHECK ((plan_key IS NULL) = (phase = 'stopped')),
    active_plan         bigint REFERENCES recycle.plan,   -- null: to be made on demand
    next_counts         int[],
    moves               jsonb NOT NULL,
    run_id              text NOT NULL
);
CREATE INDEX job_plan_set_idx ON recycle.job (plan_set_id);

CREATE TABLE recycle.worker (
    job_id        text NOT NULL REFERENCES recycle.job,
    pipeline      int NOT NULL CHECK (pipeline >= 0),
    stage         int NOT NULL CHECK (stage >= 0),
    state         text NOT NULL CHECK (state IN ('live', 'joining', 'dead')),
    role_pipeline int,
    role_stage    int,
    PRIMARY KEY (job_id, pipeline, stage),
    CHECK ((state = 'dead') = (role_stage IS NULL) AND (role_pipeline IS NULL) = (role_stage IS NULL)),
    -- Roles change hands within a transaction.
    UNIQUE (job_id, role_pipeline, role_stage) DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE recycle.event (
    job_id      text NOT NULL REFERENCES recycle.job,
    event_key   text NOT NULL CHECK (event_key <> ''),
    kind        text NOT NULL CHECK (kind IN ('fail', 'join', 'activate', 'commit', 'restart')),
    pipeline    int,
    stage       int,
    number      int NOT NULL,                             -- of the job's events, from 1
    happened_at timestamptz NOT NULL,
    epoch       int NOT NULL,                             -- after the event
    plan_before text,
    plan_after  text,
    plan_id     bigint REFERENCES recycle.plan,
    moves       int NOT NULL CHECK (moves >= 0),
    outcome     jsonb NOT NULL,                           -- what the same event is answered again
    PRIMARY KEY (job_id, event_key),
    UNIQUE (job_id, number)
);

CREATE TABLE recycle.iteration (
    job_id       text NOT NULL REFERENCES recycle.job,
    iteration    int NOT NULL CHECK (iteration >= 0),
    attempt      int NOT NULL CHECK (attempt >= 0),
    loss         float8,
    ms           float8 NOT NULL CHECK (ms >= 0),         -- since the job's event before
    PRIMARY KEY (job_id, iteration, attempt)
);

-- Steps that a stage had done too early and undid, seen at an iteration.
CREATE TABLE recycle.step_rollback (
    job_id    text NOT NULL REFERENCES recycle.job,
    iteration int NOT NULL CHECK (iteration >= 0),
    pipeline  int NOT NULL,
    stage     int NOT NULL,
    steps     int NOT NULL CHECK (steps > 0),
    PRIMARY KEY (job_id, iteration, pipeline, stage)
);

-- Where the processes of a training job share files, so that another executor can go on with them.
CREATE TABLE recycle.training (
    job_id    text PRIMARY KEY REFERENCES recycle.job,
    host      text NOT NULL,
    directory text NOT NULL
);

CREATE TABLE recycle.sim_run (
    simulation_id       text NOT NULL,
    system              text NOT NULL,
    plan_set_id         text NOT NULL REFERENCES recycle.plan_set,
    mtbf_s              float8,                           -- null: a given trace
    repair_s            float8,
    horizon_s           float8 NOT NULL CHECK (horizon_s > 0),
    seed                bigint,
    events              int NOT NULL,
    iterations          float8 NOT NULL,
    micro_batches_per_s float8 NOT NULL,
    normalised          float8 NOT NULL,                  -- over fault-free 1F1B
    downtime_s          float8 NOT NULL,
    restarts            int NOT NULL,
    run_id              text NOT NULL,
    PRIMARY KEY (simulation_id, system)
);

CREATE TABLE recycle.sim_interval (
    simulation_id text NOT NULL,
    system        text NOT NULL,
    number        int NOT NULL CHECK (number >= 0),
    start_s       float8 NOT NULL,
    end_s         float8 NOT NULL,
    failed        int NOT NULL CHECK (failed >= 0),
    iteration_us  float8,                                 -- null: it stands still
    downtime_s    float8 NOT NULL,
    iterations    float8 NOT NULL,
    PRIMARY KEY (simulation_id, system, number),
    CHECK (end_s >= start_s)
);

CREATE TABLE recycle.picture (
    run_id text NOT NULL,
    name   text NOT NULL,
    svg    text NOT NULL,
    PRIMARY KEY (run_id, name)
);
