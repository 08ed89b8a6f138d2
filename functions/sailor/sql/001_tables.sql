-- What Sailor knows, plans and does.
--
-- Inputs are immutable and named by a hash of their content: a profile (what layers take), a network
-- (what links carry) and a price list. A plan names the three that it was made from, so a plan is
-- never older than it says. A model is what is trained; a job is a model that is being trained,
-- with its goal, the plan it runs and the availability version up to which it has been replanned.
-- run_id is the workflow run that wrote a row.

CREATE TABLE sailor.gpu_type (
    gpu                 text PRIMARY KEY CHECK (gpu <> ''),
    memory_bytes        float8 NOT NULL CHECK (memory_bytes > 0),
    gpus_per_node       int NOT NULL CHECK (gpus_per_node >= 1),
    fixed_bytes         float8 NOT NULL CHECK (fixed_bytes >= 0),   -- what the platform itself takes
    matmul_flops_per_s  float8 NOT NULL,                            -- published peaks; 0: unknown
    half_flops_per_s    float8 NOT NULL,
    memory_bytes_per_s  float8 NOT NULL,
    peer_bytes_per_s    float8 NOT NULL
);

CREATE TABLE sailor.model (
    model_id            text PRIMARY KEY CHECK (model_id <> ''),
    global_batch        int NOT NULL CHECK (global_batch >= 1),     -- sequences
    layers              int NOT NULL CHECK (layers >= 1),
    blocks              int NOT NULL CHECK (blocks >= 1),
    hidden              int NOT NULL CHECK (hidden >= 1),
    heads               int NOT NULL CHECK (heads >= 1),
    sequence_length     int NOT NULL CHECK (sequence_length >= 1),
    vocabulary          int NOT NULL CHECK (vocabulary >= 1),
    optimizer           text NOT NULL,
    precision           text NOT NULL CHECK (precision IN ('fp32', 'fp16')),
    run_id              text NOT NULL
);

CREATE TABLE sailor.profile (
    profile_id  text PRIMARY KEY,                                   -- hash of its content
    model_id    text NOT NULL REFERENCES sailor.model,
    source      text NOT NULL,                                      -- roofline, measured, published
    stored_at   timestamptz NOT NULL DEFAULT now(),
    run_id      text NOT NULL
);
CREATE INDEX profile_model_id_idx ON sailor.profile (model_id);

CREATE TABLE sailor.layer_mem (
    profile_id      text NOT NULL REFERENCES sailor.profile,
    degree          int NOT NULL CHECK (degree >= 1),
    layer           int NOT NULL CHECK (layer >= 0),
    parameters      float8 NOT NULL,                                -- numbers, not bytes, per GPU
    output_floats   float8 NOT NULL,
    input_floats    float8 NOT NULL,
    kept_floats     float8 NOT NULL,
    PRIMARY KEY (profile_id, degree, layer)
);

CREATE TABLE sailor.layer_time (
    profile_id  text NOT NULL REFERENCES sailor.profile,
    gpu         text NOT NULL,
    microbatch  int NOT NULL CHECK (microbatch >= 1),
    degree      int NOT NULL CHECK (degree >= 1),
    layer       int NOT NULL CHECK (layer >= 0),
    forward_s   float8 NOT NULL CHECK (forward_s >= 0),
    backward_s  float8 NOT NULL CHECK (backward_s >= 0),
    update_s    float8 NOT NULL CHECK (update_s >= 0),
    PRIMARY KEY (profile_id, gpu, microbatch, degree, layer)
);

CREATE TABLE sailor.network (
    network_id  text PRIMARY KEY,                                   -- hash of its content
    source      text NOT NULL,                                      -- assumed, measured, published
    r_squared   float8,                                             -- of a fit that we made
    stored_at   timestamptz NOT NULL DEFAULT now(),
    run_id      text NOT NULL
);

-- bw(x) = c0·u² + c1·u + c2 GB/s, u = log2(bytes / 1e6), of count pairs that send at once.
CREATE TABLE sailor.link (
    network_id      text NOT NULL REFERENCES sailor.network,
    zone_a          text NOT NULL,
    gpu_a           text NOT NULL,
    count_a         int NOT NULL CHECK (count_a >= 1),
    zone_b          text NOT NULL,
    gpu_b           text NOT NULL,
    count_b         int NOT NULL CHECK (count_b >= 1),
    c0              float8 NOT NULL,
    c1              float8 NOT NULL,
    c2              float8 NOT NULL,
    max_bytes_per_s float8 NOT NULL CHECK (max_bytes_per_s > 0),
    PRIMARY KEY (network_id, zone_a, gpu_a, count_a, zone_b, gpu_b, count_b)
);

CREATE TABLE sailor.link_sample (
    network_id  text NOT NULL REFERENCES sailor.network,
    size_bytes  bigint NOT NULL CHECK (size_bytes > 0),
    gb_per_s    float8 NOT NULL CHECK (gb_per_s > 0),
    PRIMARY KEY (network_id, size_bytes)
);

CREATE TABLE sailor.price_list (
    price_list_id   text PRIMARY KEY,                               -- hash of its content
    version         bigint GENERATED ALWAYS AS IDENTITY UNIQUE,     -- the newest is used
    source          text NOT NULL,
    stored_at       timestamptz NOT NULL DEFAULT now(),
    run_id          text NOT NULL
);

CREATE TABLE sailor.price (
    price_list_id   text NOT NULL REFERENCES sailor.price_list,
    gpu             text NOT NULL,
    zone            text NOT NULL,                                  -- '': zones without a row
    valid_from_s    float8 NOT NULL DEFAULT '-infinity',
    valid_to_s      float8 NOT NULL DEFAULT 'infinity',
    usd_per_hour    float8 NOT NULL CHECK (usd_per_hour >= 0),
    PRIMARY KEY (price_list_id, gpu, zone, valid_from_s),
    CHECK (valid_from_s < valid_to_s)
);

CREATE TABLE sailor.egress (
    price_list_id   text NOT NULL REFERENCES sailor.price_list,
    zone_a          text NOT NULL,
    zone_b          text NOT NULL,
    usd_per_gb      float8 NOT NULL CHECK (usd_per_gb >= 0),        -- of 1e9 bytes
    PRIMARY KEY (price_list_id, zone_a, zone_b)
);

-- Each change of what can be had is a version; availability holds all counts of a version.
CREATE TABLE sailor.availability_version (
    version     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    changed_at  timestamptz NOT NULL DEFAULT now(),
    run_id      text NOT NULL
);

CREATE TABLE sailor.availability (
    version     bigint NOT NULL REFERENCES sailor.availability_version,
    gpu         text NOT NULL,
    zone        text NOT NULL,
    count       int NOT NULL CHECK (count >= 0),
    PRIMARY KEY (version, gpu, zone)
);

CREATE TABLE sailor.plan (
    plan_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model_id        text NOT NULL REFERENCES sailor.model,
    profile_id      text NOT NULL REFERENCES sailor.profile,
    network_id      text NOT NULL REFERENCES sailor.network,
    price_list_id   text NOT NULL REFERENCES sailor.price_list,
    version         bigint REFERENCES sailor.availability_version,  -- null: a what-if
    planner         text NOT NULL,                                  -- given: by hand
    mode            text NOT NULL CHECK (mode IN ('exact', 'published')),
    rank            int NOT NULL CHECK (rank >= 0),                 -- 0: the search's choice
    microbatch      int NOT NULL CHECK (microbatch >= 1),
    stages          int NOT NULL CHECK (stages >= 1),
    replicas        int NOT NULL CHECK (replicas >= 1),
    global_batch    int NOT NULL,
    iteration_s     float8 NOT NULL CHECK (iteration_s > 0),
    compute_usd     float8 NOT NULL,                                -- per iteration
    traffic_usd     float8 NOT NULL,
    peak_bytes      float8 NOT NULL,
    feasible        boolean NOT NULL,
    layout          jsonb NOT NULL,                                 -- the plan, as the model reads it
    created_at      timestamptz NOT NULL DEFAULT now(),
    run_id          text NOT NULL
);
CREATE INDEX plan_run_id_idx ON sailor.plan (run_id);

CREATE TABLE sailor.stage (
    plan_id     bigint NOT NULL REFERENCES sailor.plan,
    stage       int NOT NULL CHECK (stage >= 0),
    first_layer int NOT NULL CHECK (first_layer >= 0),
    last_layer  int NOT NULL,
    PRIMARY KEY (plan_id, stage),
    CHECK (first_layer <= last_layer)
);

CREATE TABLE sailor.replica (
    plan_id     bigint NOT NULL,
    stage       int NOT NULL,
    replica     int NOT NULL CHECK (replica >= 0),
    gpu         text NOT NULL,
    degree      int NOT NULL CHECK (degree >= 1),
    zone        text NOT NULL,
    peak_bytes  float8 NOT NULL,                                    -- of each of its GPUs
    limit_bytes float8 NOT NULL,
    PRIMARY KEY (plan_id, stage, replica),
    FOREIGN KEY (plan_id, stage) REFERENCES sailor.stage
);

CREATE TABLE sailor.sim_part (
    plan_id         bigint NOT NULL,
    stage           int NOT NULL,
    compute_s       float8 NOT NULL,                                -- of one microbatch
    send_forward_s  float8 NOT NULL,
    send_backward_s float8 NOT NULL,
    update_s        float8 NOT NULL,
    sync_s          float8 NOT NULL,
    PRIMARY KEY (plan_id, stage),
    FOREIGN KEY (plan_id, stage) REFERENCES sailor.stage
);

CREATE TABLE sailor.search (
    run_id          text NOT NULL,
    planner         text NOT NULL,
    plan_id         bigint REFERENCES sailor.plan,                  -- null: nothing fits
    version         bigint REFERENCES sailor.availability_version,
    objective       text NOT NULL CHECK (objective IN ('throughput', 'cost')),
    max_cost_usd            float8 CHECK (max_cost_usd > 0),
    min_iterations_per_s    float8 CHECK (min_iterations_per_s > 0),
    seconds         float8 NOT NULL,
    complete        boolean NOT NULL,                               -- false: a time limit ended it
    considered      bigint NOT NULL,
    pruned          bigint NOT NULL,
    simulated       bigint NOT NULL,
    skipped_oom     bigint NOT NULL,
    bound_s         float8,                                         -- nothing is faster
    inside_cluster  boolean NOT NULL,                               -- the plan uses what there is
    PRIMARY KEY (run_id, planner)
);

CREATE TABLE sailor.picture (
    run_id  text NOT NULL,
    name    text NOT NULL,
    svg     text NOT NULL,
    PRIMARY KEY (run_id, name)
);
