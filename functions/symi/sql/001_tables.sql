-- Popularity of experts, placements decided by it, and what came of them.
--
-- A run is a popularity trace: ingested, synthetic, or growing with a training job. A study puts a
-- run on a cluster under one or several policies. run_id is the workflow run that wrote a row.

CREATE TABLE symi.run (
    run             text PRIMARY KEY CHECK (run <> ''),
    kind            text NOT NULL CHECK (kind IN ('trace', 'synthetic', 'training')),
    layers          int NOT NULL CHECK (layers > 0),
    experts         int NOT NULL CHECK (experts > 0),
    first_iteration int NOT NULL CHECK (first_iteration >= 0),
    iterations      int NOT NULL CHECK (iterations >= 0),   -- whole ones stored, without a gap
    state           text NOT NULL CHECK (state IN ('OPEN', 'FAILED', 'COMPLETE')),
    origin          jsonb NOT NULL,                         -- what it was made from
    run_id          text NOT NULL
);

-- Tokens that the router sent to an expert, before drops. Its writer is its run's, or its iteration's.
-- No foreign key: its check per row would take as long as the rest of an ingest, and the functions
-- that insert here hold the run's row, whose count of iterations they keep.
CREATE TABLE symi.popularity (
    run    text NOT NULL,
    iter   int NOT NULL,
    layer  int NOT NULL CHECK (layer >= 0),
    expert int NOT NULL CHECK (expert >= 0),
    tokens bigint NOT NULL CHECK (tokens >= 0),
    PRIMARY KEY (run, iter, layer, expert)
);

CREATE TABLE symi.layer_statistics (
    run                   text NOT NULL REFERENCES symi.run,
    layer                 int NOT NULL,
    iterations            int NOT NULL,
    mean_tokens           float8 NOT NULL,
    max_over_mean         float8 NOT NULL,
    largest_max_over_mean float8 NOT NULL,
    gini                  float8 NOT NULL,
    entropy_bits          float8 NOT NULL,
    swing                 float8 NOT NULL,
    autocorrelation       float8[] NOT NULL,                -- lag 1 first; null where undefined
    run_id                text NOT NULL,
    PRIMARY KEY (run, layer)
);

CREATE TABLE symi.study (
    study           text PRIMARY KEY CHECK (study <> ''),   -- a training run's study has its name
    run             text NOT NULL REFERENCES symi.run,
    kind            text NOT NULL CHECK (kind IN ('planning', 'simulation', 'training')),
    ranks           int NOT NULL CHECK (ranks > 0),
    slots_per_rank  int NOT NULL CHECK (slots_per_rank > 0),
    capacity_factor float8 NOT NULL CHECK (capacity_factor > 0),
    latency         text NOT NULL CHECK (latency IN ('none', 'calibrated', 'physical', 'measured')),
    run_id          text NOT NULL
);
CREATE INDEX study_run_idx ON symi.study (run);

-- The placement on which an iteration runs, decided by the iterations before it.
CREATE TABLE symi.plan (
    study     text NOT NULL REFERENCES symi.study,
    policy    text NOT NULL,
    iter      int NOT NULL,
    layer     int NOT NULL,
    counts    int[] NOT NULL,                               -- replicas of each expert
    placement int[] NOT NULL,                               -- expert of each global slot
    smoothed  float8[],                                     -- what the policy remembers, if anything
    digest    text NOT NULL,                                -- SHA-256 of the placement
    run_id    text NOT NULL,
    PRIMARY KEY (study, policy, iter, layer)
);

CREATE TABLE symi.iter (
    study         text NOT NULL REFERENCES symi.study,
    policy        text NOT NULL,
    iter          int NOT NULL,
    loss          float8,                                   -- what is minimised
    cross_entropy float8,
    latency_ms    float8 CHECK (latency_ms >= 0),
    bytes_g       bigint CHECK (bytes_g >= 0),              -- gradient shards between ranks
    bytes_w       bigint CHECK (bytes_w >= 0),              -- weight shards between ranks
    survival      float8 NOT NULL CHECK (survival BETWEEN 0 AND 1),
    run_id        text NOT NULL,
    PRIMARY KEY (study, policy, iter)
);

-- Tokens over capacity; an expert that dropped none has no row.
CREATE TABLE symi.dropped (
    study   text NOT NULL,
    policy  text NOT NULL,
    iter    int NOT NULL,
    layer   int NOT NULL,
    expert  int NOT NULL,
    tokens  float8 NOT NULL CHECK (tokens > 0),
    PRIMARY KEY (study, policy, iter, layer, expert),
    FOREIGN KEY (study, policy, iter) REFERENCES symi.iter
);

-- A policy's whole course in a study.
CREATE TABLE symi.result (
    study             text NOT NULL REFERENCES symi.study,
    policy            text NOT NULL,
    drop_share        float8 NOT NULL,
    mean_latency_ms   float8 NOT NULL,
    latency_parts_ms  jsonb NOT NULL,                       -- mean of each part of an iteration
    minutes_to_target float8,
    digest            text NOT NULL,                        -- of everything stored with it
    run_id            text NOT NULL,
    PRIMARY KEY (study, policy)
);

CREATE TABLE symi.cost (
    run_id                  text NOT NULL,
    variant                 text NOT NULL CHECK (variant IN ('offload', 'hbm', 'allreduce')),
    ranks                   int NOT NULL,
    experts                 int NOT NULL,
    slots_per_rank          int NOT NULL,
    gradient_bytes          float8 NOT NULL,
    weight_bytes            float8 NOT NULL,
    optimizer_bytes         float8 NOT NULL,
    pci_bytes_per_s         float8 NOT NULL,
    network_bytes_per_s     float8 NOT NULL,
    gradient_volume_bytes   float8 NOT NULL,
    weight_volume_bytes     float8 NOT NULL,
    static_s                float8 NOT NULL,
    symi_s                  float8 NOT NULL,
    overhead_percent        float8 NOT NULL,
    move_weights_s          float8 NOT NULL,
    move_optimizer_s        float8 NOT NULL,
    optimizer_total_bytes   float8 NOT NULL,
    device_bytes            float8 NOT NULL,
    host_bytes              float8 NOT NULL,
    PRIMARY KEY (run_id, variant)
);

CREATE TABLE symi.train_rank (
    run    text NOT NULL REFERENCES symi.run,
    rank   int NOT NULL,
    pid    int NOT NULL,
    state  text NOT NULL CHECK (state IN ('RUNNING', 'SUCCEEDED', 'FAILED')),
    run_id text NOT NULL,
    PRIMARY KEY (run, rank)
);

-- Which parameters of an expert a rank's optimizer owns. It never changes during a run.
CREATE TABLE symi.shard_range (
    run    text NOT NULL REFERENCES symi.run,
    layer  int NOT NULL,
    expert int NOT NULL,
    rank   int NOT NULL,
    lo     int NOT NULL,
    hi     int NOT NULL CHECK (hi >= lo),                   -- exclusive; lo = hi holds padding only
    run_id text NOT NULL,
    PRIMARY KEY (run, layer, expert, rank)
);

-- All shards of a run are of one version: the last committed iteration.
CREATE VIEW symi.shard AS
SELECT s.run, s.layer, s.expert, s.rank, s.lo, s.hi, r.iterations AS version
  FROM symi.shard_range s JOIN symi.run r USING (run);

CREATE TABLE symi.picture (
    run_id text NOT NULL,
    name   text NOT NULL,
    svg    text NOT NULL,
    PRIMARY KEY (run_id, name)
);
