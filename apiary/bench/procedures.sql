-- The floor: what the functions do, by hand, in PL/pgSQL; nothing is recorded. The last three are
-- in PL/Python with kept plans, which is the language that Apiary's functions are in.
CREATE SCHEMA floor;

CREATE FUNCTION floor.increment(key int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v bigint;
BEGIN
    SELECT c.value INTO v FROM bench.counter c WHERE c.key = increment.key;
    INSERT INTO bench.counter AS c (key, value) VALUES (increment.key, coalesce(v, 0) + 1)
        ON CONFLICT ON CONSTRAINT counter_pkey DO UPDATE SET value = excluded.value;
    RETURN coalesce(v, 0) + 1;
END $$;

CREATE FUNCTION floor.transfer(source int, target int, amount int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE b bigint;
BEGIN
    SELECT balance INTO b FROM bench.account WHERE account_id = source;
    UPDATE bench.account SET balance = balance - amount WHERE account_id = source;
    UPDATE bench.account SET balance = balance + amount WHERE account_id = target;
    INSERT INTO bench.entry (source, target, amount)
        VALUES (transfer.source, transfer.target, transfer.amount);
    RETURN b - amount;
END $$;

CREATE FUNCTION floor.timeline(user_id int) RETURNS json LANGUAGE plpgsql AS $$
DECLARE texts text[] := '{}'; followee int;
BEGIN
    FOR followee IN SELECT f.followee_id FROM retwis.followee f WHERE f.user_id = timeline.user_id
                     ORDER BY f.followee_id
    LOOP
        texts := texts || ARRAY(SELECT p.post FROM retwis.post p WHERE p.user_id = followee
                                 ORDER BY p."timestamp" DESC, p.post_id DESC LIMIT 10);
    END LOOP;
    RETURN to_json(texts);
END $$;

CREATE FUNCTION floor.post(user_id int, post_id int, "timestamp" int, text text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO retwis.post (user_id, post_id, "timestamp", post)
        VALUES (post.user_id, post.post_id, post."timestamp", post.text);
END $$;

-- A whole number of km is 5 where PostgreSQL writes it as JSON, and 5.0 where Python does, as the
-- functions do; a numeric keeps its decimals.
CREATE FUNCTION floor.km(distance float8) RETURNS json LANGUAGE sql STABLE RETURN
    CASE WHEN distance = trunc(distance) THEN to_json(distance::int + 0.0)
         ELSE to_json(distance) END;

CREATE FUNCTION floor.search(longitude float8, latitude float8) RETURNS json LANGUAGE plpgsql AS $$
DECLARE found json[] := '{}'; hit record; rooms int;
BEGIN
    FOR hit IN
        SELECT h.hotel_id, h.hotel_name, d.distance_km
          FROM hotel.position p JOIN hotel.hotel h USING (hotel_id),
               LATERAL (SELECT 6371.0::float8 * acos(least(1, greatest(-1,
                   sind(p.latitude) * sind(search.latitude) + cosd(p.latitude)
                   * cosd(search.latitude) * cosd(p.longitude - search.longitude)))) AS distance_km) d
         WHERE d.distance_km <= 10000
         ORDER BY d.distance_km, h.hotel_id LIMIT 6
    LOOP
        SELECT h.available_rooms INTO rooms FROM hotel.hotel h WHERE h.hotel_id = hit.hotel_id;
        IF rooms > 0 THEN
            found := found || json_build_object('hotel_id', hit.hotel_id,
                'hotel_name', hit.hotel_name, 'distance_km', floor.km(hit.distance_km),
                'available_rooms', rooms);
        END IF;
    END LOOP;
    RETURN to_json(found);
END $$;

CREATE FUNCTION floor.reserve(hotel_id int, customer_id int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE rooms int;
BEGIN
    SELECT h.available_rooms INTO rooms FROM hotel.hotel h WHERE h.hotel_id = reserve.hotel_id;
    IF coalesce(rooms, 0) = 0 THEN RETURN 1; END IF;
    UPDATE hotel.hotel h SET available_rooms = available_rooms - 1
     WHERE h.hotel_id = reserve.hotel_id;
    INSERT INTO hotel.reservation (hotel_id, customer_id)
        VALUES (reserve.hotel_id, reserve.customer_id);
    RETURN 0;
END $$;

CREATE FUNCTION floor.get_item(person_id int, text text, max_cost int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE found int; price int; pieces int;
BEGIN
    SELECT i.item_id INTO found FROM shop.item i
     WHERE i.words @@ plainto_tsquery('english', get_item.text) AND i.cost <= max_cost
     ORDER BY i.cost, i.item_id LIMIT 1;
    IF found IS NULL THEN RETURN -1; END IF;
    SELECT i.cost, i.inventory INTO price, pieces FROM shop.item i WHERE i.item_id = found;
    IF pieces < 1 THEN RETURN 1; END IF;
    INSERT INTO shop.cart (person_id, item_id, cost) VALUES (get_item.person_id, found, price);
    UPDATE shop.item SET inventory = inventory - 1 WHERE item_id = found;
    RETURN 0;
END $$;

CREATE FUNCTION floor.checkout(person_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE new_id bigint := pg_current_xact_id()::text::bigint; total bigint;
BEGIN
    INSERT INTO shop.order_line (line_id, person_id, order_id, item_id)
        SELECT c.line_id, c.person_id, new_id, c.item_id FROM shop.cart c
         WHERE c.person_id = checkout.person_id;
    SELECT coalesce(sum(c.cost), 0) INTO total FROM shop.cart c
     WHERE c.person_id = checkout.person_id;
    INSERT INTO shop.transaction (order_id, person_id, cost)
        VALUES (new_id, checkout.person_id, total);
    DELETE FROM shop.cart c WHERE c.person_id = checkout.person_id;
    RETURN total;
END $$;

CREATE FUNCTION floor.set_price(item_id int, cost int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE shop.item i SET cost = set_price.cost WHERE i.item_id = set_price.item_id;
    RETURN FOUND;
END $$;

CREATE FUNCTION floor.new_order(w_id int, d_id int, c_id int, items int[], supply_w_ids int[],
                                quantities int[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    prices int[] := '{}'; found int; tax int; d record; disc int; remaining int; total bigint := 0;
BEGIN
    FOR k IN 1 .. cardinality(items) LOOP
        SELECT i.price INTO found FROM tpcc.item i WHERE i.i_id = items[k];
        IF found IS NULL THEN RETURN -1; END IF;
        prices := prices || found;
    END LOOP;
    SELECT w.w_tax INTO tax FROM tpcc.warehouse w WHERE w.w_id = new_order.w_id;
    UPDATE tpcc.district t SET next_o_id = next_o_id + 1
     WHERE t.w_id = new_order.w_id AND t.d_id = new_order.d_id
    RETURNING t.d_tax, t.next_o_id - 1 AS o_id INTO d;
    SELECT c.discount INTO disc FROM tpcc.customer c
     WHERE c.w_id = new_order.w_id AND c.d_id = new_order.d_id AND c.c_id = new_order.c_id;
    INSERT INTO tpcc.orders (w_id, d_id, o_id, c_id, lines)
        VALUES (new_order.w_id, new_order.d_id, d.o_id, new_order.c_id, cardinality(items));
    INSERT INTO tpcc.new_order (w_id, d_id, o_id)
        VALUES (new_order.w_id, new_order.d_id, d.o_id);
    FOR k IN 1 .. cardinality(items) LOOP
        SELECT s.quantity - quantities[k] INTO remaining FROM tpcc.stock s
         WHERE s.w_id = supply_w_ids[k] AND s.i_id = items[k];
        UPDATE tpcc.stock s
           SET quantity = CASE WHEN remaining >= 10 THEN remaining ELSE remaining + 91 END,
               ytd = ytd + quantities[k], orders = orders + 1,
               remote = remote + (supply_w_ids[k] <> new_order.w_id)::int
         WHERE s.w_id = supply_w_ids[k] AND s.i_id = items[k];
        total := total + quantities[k] * prices[k];
        INSERT INTO tpcc.order_line (w_id, d_id, o_id, number, i_id, supply_w_id, quantity, amount)
            VALUES (new_order.w_id, new_order.d_id, d.o_id, k, items[k], supply_w_ids[k],
                    quantities[k], quantities[k] * prices[k]);
    END LOOP;
    RETURN total * (10000 - disc) * (10000 + tax + d.d_tax) / 100000000;
END $$;

CREATE FUNCTION floor.payment(w_id int, d_id int, c_w_id int, c_d_id int, c_id int,
                              last_name text, amount int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE payer int := c_id; named int[]; left_over bigint;
BEGIN
    UPDATE tpcc.warehouse w SET w_ytd = w_ytd + amount WHERE w.w_id = payment.w_id;
    UPDATE tpcc.district t SET d_ytd = d_ytd + amount
     WHERE t.w_id = payment.w_id AND t.d_id = payment.d_id;
    IF payer IS NULL THEN
        named := ARRAY(SELECT c.c_id FROM tpcc.customer c
                        WHERE c.w_id = c_w_id AND c.d_id = c_d_id
                          AND c.last_name = payment.last_name ORDER BY c.first_name, c.c_id);
        payer := named[(cardinality(named) + 1) / 2];
    END IF;
    UPDATE tpcc.customer c SET balance = balance - amount, payments = payments + 1
     WHERE c.w_id = c_w_id AND c.d_id = c_d_id AND c.c_id = payer
    RETURNING c.balance INTO left_over;
    INSERT INTO tpcc.history (w_id, d_id, c_w_id, c_d_id, c_id, amount)
        VALUES (payment.w_id, payment.d_id, payment.c_w_id, payment.c_d_id, payer, payment.amount);
    RETURN left_over;
END $$;

CREATE SCHEMA floor_python;

CREATE FUNCTION floor_python.increment(key int) RETURNS bigint LANGUAGE plpython3u AS $$
if "select" not in SD:
    SD["select"] = plpy.prepare("SELECT value FROM bench.counter WHERE key = $1", ["int"])
    SD["insert"] = plpy.prepare(
        "INSERT INTO bench.counter (key, value) VALUES ($1, $2)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value", ["int", "bigint"])
rows = plpy.execute(SD["select"], [key])
value = rows[0]["value"] + 1 if rows else 1
plpy.execute(SD["insert"], [key, value])
return value
$$;

CREATE FUNCTION floor_python.reserve(hotel_id int, customer_id int) RETURNS int
LANGUAGE plpython3u AS $$
if "select" not in SD:
    SD["select"] = plpy.prepare(
        "SELECT available_rooms FROM hotel.hotel WHERE hotel_id = $1", ["int"])
    SD["update"] = plpy.prepare(
        "UPDATE hotel.hotel SET available_rooms = available_rooms - 1 WHERE hotel_id = $1", ["int"])
    SD["insert"] = plpy.prepare(
        "INSERT INTO hotel.reservation (hotel_id, customer_id) VALUES ($1, $2)", ["int", "int"])
rows = plpy.execute(SD["select"], [hotel_id])
if not rows or not rows[0]["available_rooms"]:
    return 1
plpy.execute(SD["update"], [hotel_id])
plpy.execute(SD["insert"], [hotel_id, customer_id])
return 0
$$;

CREATE FUNCTION floor_python.post(user_id int, post_id int, "timestamp" int, text text) RETURNS void
LANGUAGE plpython3u AS $$
if "insert" not in SD:
    SD["insert"] = plpy.prepare(
        'INSERT INTO retwis.post (user_id, post_id, "timestamp", post) VALUES ($1, $2, $3, $4)',
        ["int", "int", "int", "text"])
plpy.execute(SD["insert"], [user_id, post_id, timestamp, text])
$$;
