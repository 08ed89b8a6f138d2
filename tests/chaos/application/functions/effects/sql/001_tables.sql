-- Nothing here is unique, so that an effect that takes place twice is there twice.
CREATE TABLE effects.effect (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id  text NOT NULL,
    tag     text NOT NULL
);
CREATE TABLE effects.counter (
    name    text PRIMARY KEY,
    value   integer NOT NULL
);
INSERT INTO effects.counter VALUES ('hot', 0), ('cold', 0);
