-- The part of TPC-C's schema that NewOrder and Payment use; money in cents, tax and discount in
-- basis points, so that every engine computes the same.
CREATE TABLE tpcc.warehouse (
    w_id    int PRIMARY KEY,
    w_tax   int NOT NULL,
    w_ytd   bigint NOT NULL
);

CREATE TABLE tpcc.district (
    w_id        int NOT NULL REFERENCES tpcc.warehouse,
    d_id        int NOT NULL,
    d_tax       int NOT NULL,
    d_ytd       bigint NOT NULL,
    next_o_id   int NOT NULL,
    PRIMARY KEY (w_id, d_id)
);

CREATE TABLE tpcc.customer (
    w_id        int NOT NULL,
    d_id        int NOT NULL,
    c_id        int NOT NULL,
    first_name  text NOT NULL,
    last_name   text NOT NULL,
    discount    int NOT NULL,
    balance     bigint NOT NULL,
    payments    int NOT NULL,
    PRIMARY KEY (w_id, d_id, c_id)
);
CREATE INDEX customer_name_idx ON tpcc.customer (w_id, d_id, last_name, first_name);

CREATE TABLE tpcc.history (
    history_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    w_id        int NOT NULL,
    d_id        int NOT NULL,
    c_w_id      int NOT NULL,
    c_d_id      int NOT NULL,
    c_id        int NOT NULL,
    amount      bigint NOT NULL
);

CREATE TABLE tpcc.item (
    i_id    int PRIMARY KEY,
    price   int NOT NULL
);

CREATE TABLE tpcc.stock (
    w_id        int NOT NULL,
    i_id        int NOT NULL,
    quantity    int NOT NULL,
    ytd         bigint NOT NULL,
    orders      int NOT NULL,
    remote      int NOT NULL,
    PRIMARY KEY (w_id, i_id)
);

CREATE TABLE tpcc.orders (
    w_id    int NOT NULL,
    d_id    int NOT NULL,
    o_id    int NOT NULL,
    c_id    int NOT NULL,
    lines   int NOT NULL,
    PRIMARY KEY (w_id, d_id, o_id)
);

CREATE TABLE tpcc.new_order (
    w_id    int NOT NULL,
    d_id    int NOT NULL,
    o_id    int NOT NULL,
    PRIMARY KEY (w_id, d_id, o_id)
);

CREATE TABLE tpcc.order_line (
    w_id        int NOT NULL,
    d_id        int NOT NULL,
    o_id        int NOT NULL,
    number      int NOT NULL,
    i_id        int NOT NULL,
    supply_w_id int NOT NULL,
    quantity    int NOT NULL,
    amount      bigint NOT NULL,
    PRIMARY KEY (w_id, d_id, o_id, number)
);
