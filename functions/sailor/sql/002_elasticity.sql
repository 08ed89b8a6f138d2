-- Jobs under changing availability. A reconfiguration is one job's answer to one version: it is
-- REPLANNING until it is APPLIED (another plan), KEPT (the plan that runs is still the best choice),
-- WAITING (nothing fits) or SUPERSEDED (a newer version came first). It changes the job once.

CREATE TABLE sailor.job (
    job_id                  text PRIMARY KEY CHECK (job_id <> ''),
    model_id                text NOT NULL REFERENCES sailor.model,
    objective               text NOT NULL CHECK (objective IN ('throughput', 'cost')),
    max_cost_usd            float8 CHECK (max_cost_usd > 0),
    min_iterations_per_s    float8 CHECK (min_iterations_per_s > 0),
    planner                 text NOT NULL,
    profile                 text NOT NULL,                          -- best, roofline or an id
    time_limit_s            float8 CHECK (time_limit_s > 0),
    reconfiguration_s       float8 NOT NULL CHECK (reconfiguration_s >= 0),
    expected_segment_s      float8 NOT NULL CHECK (expected_segment_s > 0),
    shape                   jsonb,                                  -- of a live job: what is trained
    state                   text NOT NULL DEFAULT 'PLANNED'
                                CHECK (state IN ('PLANNED', 'WAITING', 'TRAINING', 'DONE')),
    plan_id                 bigint REFERENCES sailor.plan,          -- what runs
    version                 bigint REFERENCES sailor.availability_version, -- answered up to here
    steps                   int NOT NULL DEFAULT 0 CHECK (steps >= 0),
    run_id                  text NOT NULL
);

CREATE TABLE sailor.reconfiguration (
    job_id          text NOT NULL REFERENCES sailor.job,
    version         bigint NOT NULL REFERENCES sailor.availability_version,
    state           text NOT NULL
                        CHECK (state IN ('REPLANNING', 'APPLIED', 'KEPT', 'WAITING', 'SUPERSEDED')),
    plan_before     bigint REFERENCES sailor.plan,
    plan_after      bigint REFERENCES sailor.plan,
    changed_at      timestamptz NOT NULL,                           -- the availability
    begun_at        timestamptz NOT NULL DEFAULT now(),
    decided_at      timestamptz,
    resumed_at      timestamptz,                                    -- first step under the plan
    run_id          text NOT NULL,
    PRIMARY KEY (job_id, version),
    CHECK ((state = 'REPLANNING') = (decided_at IS NULL))
);

-- What each worker of either plan does; layers are loaded from the newest complete checkpoint.
CREATE TABLE sailor.reconfiguration_action (
    job_id          text NOT NULL,
    version         bigint NOT NULL,
    action          int NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('stay', 'move', 'join', 'leave')),
    gpu             text NOT NULL,
    degree          int NOT NULL,
    zone            text NOT NULL,
    stage_before    int,
    replica_before  int,
    stage_after     int,
    replica_after   int,
    PRIMARY KEY (job_id, version, action),
    FOREIGN KEY (job_id, version) REFERENCES sailor.reconfiguration
);

CREATE TABLE sailor.reconfiguration_layer (
    job_id      text NOT NULL,
    version     bigint NOT NULL,
    action      int NOT NULL,
    layer       int NOT NULL CHECK (layer >= 0),
    does        text NOT NULL CHECK (does IN ('load', 'drop')),
    PRIMARY KEY (job_id, version, action, layer),
    FOREIGN KEY (job_id, version, action) REFERENCES sailor.reconfiguration_action
);

-- Two buffers written in turn: while one is incomplete the other holds the newest complete state.
CREATE TABLE sailor.checkpoint (
    job_id      text NOT NULL REFERENCES sailor.job,
    slot        int NOT NULL CHECK (slot IN (0, 1)),
    step        int NOT NULL CHECK (step >= 0),                     -- steps done when it was written
    complete    boolean NOT NULL,
    location    text NOT NULL,                                      -- folder, one file a layer
    written_at  timestamptz NOT NULL DEFAULT now(),
    run_id      text NOT NULL,
    PRIMARY KEY (job_id, slot)
);

CREATE TABLE sailor.measured (
    job_id      text NOT NULL REFERENCES sailor.job,
    step        int NOT NULL CHECK (step >= 0),
    plan_id     bigint NOT NULL REFERENCES sailor.plan,
    seconds     float8 NOT NULL CHECK (seconds > 0),
    loss        float8 NOT NULL,
    run_id      text NOT NULL,
    PRIMARY KEY (job_id, step)
);

CREATE TABLE sailor.replay_segment (
    run_id          text NOT NULL,
    segment         int NOT NULL CHECK (segment >= 0),
    start_s         float8 NOT NULL,
    duration_s      float8 NOT NULL CHECK (duration_s >= 0),
    available       jsonb NOT NULL,
    used            jsonb NOT NULL,
    switched        boolean NOT NULL,
    iterations      float8 NOT NULL,
    iterations_per_s float8 NOT NULL,
    cost_usd        float8 NOT NULL,
    layout          jsonb,                                          -- null: nothing fits
    PRIMARY KEY (run_id, segment)
);

-- Plans that somebody ran, to judge the simulator by.
CREATE TABLE sailor.measured_plan (
    platform        text NOT NULL,
    name            text NOT NULL,
    model_id        text NOT NULL,
    global_batch    int NOT NULL CHECK (global_batch >= 1),
    iteration_s     float8 NOT NULL CHECK (iteration_s > 0),
    reduce_s        float8 NOT NULL,
    peak_bytes      float8 NOT NULL CHECK (peak_bytes > 0),
    stages          int NOT NULL CHECK (stages >= 1),
    layout          jsonb NOT NULL,
    run_id          text NOT NULL,
    PRIMARY KEY (platform, name)
);

CREATE TABLE sailor.validation (
    run_id          text NOT NULL,
    platform        text NOT NULL,
    name            text NOT NULL,
    mode            text NOT NULL CHECK (mode IN ('exact', 'published')),
    iteration_s     float8 NOT NULL,                                -- simulated
    peak_bytes      float8 NOT NULL,
    time_error      float8 NOT NULL,                                -- |simulated - measured| / measured
    memory_error    float8 NOT NULL,
    PRIMARY KEY (run_id, name),
    FOREIGN KEY (platform, name) REFERENCES sailor.measured_plan
);

CREATE TABLE sailor.calibration (
    run_id      text PRIMARY KEY,
    platform    text NOT NULL,
    compute     float8 NOT NULL CHECK (compute >= 0),
    p2p         float8 NOT NULL CHECK (p2p >= 0),
    sync        float8 NOT NULL CHECK (sync >= 0),
    plans       int NOT NULL,
    error       float8 NOT NULL,                                    -- each plan predicted without itself
    low         float8 NOT NULL,
    high        float8 NOT NULL
);
