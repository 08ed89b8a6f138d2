CREATE TABLE shop.item (
    item_id     int PRIMARY KEY,
    item_name   varchar(1000) NOT NULL,
    item_desc   varchar(2000) NOT NULL,
    cost        int NOT NULL,
    inventory   int NOT NULL CHECK (inventory >= 0),
    words       tsvector NOT NULL GENERATED ALWAYS AS
                    (to_tsvector('english', item_name || ' ' || item_desc)) STORED
);
CREATE INDEX item_words_idx ON shop.item USING gin (words);

-- A person may have the same item in the cart several times, so a line has a number of its own.
CREATE TABLE shop.cart (
    line_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    person_id   int NOT NULL,
    item_id     int NOT NULL REFERENCES shop.item,
    cost        int NOT NULL
);
CREATE INDEX cart_person_id_idx ON shop.cart (person_id);

CREATE TABLE shop.transaction (
    order_id    bigint PRIMARY KEY,
    person_id   int NOT NULL,
    cost        bigint NOT NULL
);

CREATE TABLE shop.order_line (
    line_id     bigint PRIMARY KEY,
    person_id   int NOT NULL,
    order_id    bigint NOT NULL,
    item_id     int NOT NULL REFERENCES shop.item
);
CREATE INDEX order_line_order_id_idx ON shop.order_line (order_id);
