CREATE TABLE bench.counter (
    key     int PRIMARY KEY,
    value   bigint NOT NULL
);

CREATE TABLE bench.account (
    account_id  int PRIMARY KEY,
    balance     bigint NOT NULL
);

CREATE TABLE bench.entry (
    entry_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source      int NOT NULL,
    target      int NOT NULL,
    amount      int NOT NULL
);

-- What `apiary bench` measured, as it measured it.
CREATE TABLE bench.result (
    result_id   text PRIMARY KEY,
    stored_at   timestamptz NOT NULL DEFAULT now(),
    commit      text NOT NULL,
    document    jsonb NOT NULL
);
