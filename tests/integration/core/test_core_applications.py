"""The first applications, and what SERIALIZABLE costs when clients touch different rows."""

from __future__ import annotations

import asyncio
import json
import random

import psycopg
import pytest

from apiary.engine.base import Invocation
from apiary.errors import IntegrityError, UniqueViolation
from apiary.execution.ids import new_run_id
from apiary.testing import Platform
from functions import hotel, retwis, shop

CLIENTS = 8
CALLS_PER_CLIENT = 150
HOTELS = 4_000


def test_a_checkout_turns_the_cart_into_an_order(apiary_app: Platform) -> None:
    app = apiary_app
    app.call(shop.add_item, 1, "tea", "green tea from Uji", cost=30, inventory=5)
    app.call(shop.add_item, 2, "cup", "a cup for tea", cost=12, inventory=5)
    for item in (1, 2):
        assert app.call(shop.add_to_cart, person_id=5, item_id=item) == shop.ADDED
    assert app.call(shop.checkout, 5) == 42
    assert app.call(shop.checkout, 5) == 0
    orders = app.query("SELECT person_id, item_id FROM shop.order_line ORDER BY item_id")
    assert orders == [{"person_id": 5, "item_id": 1}, {"person_id": 5, "item_id": 2}]
    costs = app.query("SELECT cost FROM shop.transaction WHERE person_id = 5 ORDER BY cost")
    assert [row["cost"] for row in costs] == [0, 42]
    assert app.query("SELECT * FROM shop.cart") == []


def test_the_cart_takes_what_there_is(apiary_app: Platform) -> None:
    app = apiary_app
    app.call(shop.add_item, 1, "tea", "green tea from Uji", cost=30, inventory=1)
    app.call(shop.add_item, 2, "Tea set", "cups for green tea", cost=50, inventory=0)
    assert app.call(shop.add_to_cart, 5, 2) == shop.NONE_LEFT
    assert app.call(shop.add_to_cart, 5, 3) == shop.NO_SUCH_ITEM
    assert app.query("SELECT * FROM shop.cart") == []
    assert app.call(shop.search, "green teas", 100) == 1
    assert app.call(shop.search, "green teas", 29) is None
    assert app.call(shop.get_item, 5, "green tea", 100) == shop.ADDED
    assert app.call(shop.get_item, 5, "green tea", 100) == shop.NONE_LEFT
    assert app.call(shop.get_item, 5, "coffee", 100) == shop.NO_SUCH_ITEM
    assert app.call(shop.set_price, 2, 20)
    assert not app.call(shop.set_price, 3, 20)
    assert app.call(shop.search, "tea", 100) == 2
    inventory = app.query("SELECT item_id, inventory FROM shop.item ORDER BY item_id")
    assert [row["inventory"] for row in inventory] == [0, 0]


def test_a_timeline_has_the_newest_posts_of_everybody_followed(apiary_app: Platform) -> None:
    app = apiary_app
    for user_id, post_id, timestamp, text in [
        (0, 0, 0, "hello0"),
        (0, 1, 1, "hello1"),
        (1, 2, 0, "hello2"),
    ]:
        app.call(retwis.post, user_id, post_id, timestamp, text)
    app.call(retwis.follow, 1, 0)
    app.call(retwis.follow, 1, 1)
    assert app.call(retwis.posts, 0) == ["hello1", "hello0"]
    assert sorted(app.call(retwis.timeline, 1)) == ["hello0", "hello1", "hello2"]
    with pytest.raises(UniqueViolation):
        app.call(retwis.follow, 1, 0)
    [row] = app.query("SELECT error_type FROM provenance.invocation WHERE status = 'FAILED'")
    assert row["error_type"] == "UniqueViolation"
    for number in range(2, 15):
        app.call(retwis.post, 0, number, number, f"hello{number}")
    assert app.call(retwis.posts, 0) == [f"hello{number}" for number in range(14, 4, -1)]


def test_a_position_outside_the_world_is_refused(apiary_app: Platform) -> None:
    with pytest.raises(IntegrityError):
        apiary_app.call(hotel.add_hotel, 1, "Nowhere", 1, 181.0, 0.0)
    assert apiary_app.query("SELECT * FROM hotel.hotel") == []
    assert apiary_app.call(hotel.available_rooms, 1) == 0
    assert apiary_app.call(hotel.reserve, 1, 1) == hotel.SOLD_OUT


def test_clients_on_different_rows_hardly_ever_conflict(apiary_app: Platform) -> None:
    app = apiary_app
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO hotel.hotel SELECT n, 'Hotel ' || n, 1000 FROM generate_series(1, %s) n",
            [HOTELS],
        )
        connection.execute("VACUUM ANALYZE hotel.hotel")
    hotels = list(range(1, HOTELS + 1))
    random.Random(7).shuffle(hotels)

    async def client(number: int) -> None:
        for call in range(CALLS_PER_CLIENT):
            invocation = Invocation(
                run_id=new_run_id(),
                application="apiary",
                function="hotel.reserve",
                input=json.dumps(
                    {"hotel_id": hotels[number * CALLS_PER_CLIENT + call], "customer_id": number}
                ),
                principal="test",
            )
            outcome = await app.invoker.invoke(invocation, fresh=True)
            assert outcome.output == hotel.RESERVED

    async def all_clients() -> None:
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))

    app.loop.run(all_clients())
    calls = CLIENTS * CALLS_PER_CLIENT
    assert app.query("SELECT count(*) AS n FROM hotel.reservation") == [{"n": calls}]
    [attempts] = app.query("SELECT count(*) AS n FROM apiary.attempt")
    assert attempts["n"] < calls / 100


def test_a_row_of_a_small_table_is_found_by_its_key_not_by_a_scan_that_locks_the_table(
    apiary_app: Platform,
) -> None:
    app = apiary_app
    app.query("INSERT INTO hotel.hotel SELECT n, 'Hotel ' || n, 9 FROM generate_series(1, 100) n")
    app.query("VACUUM ANALYZE hotel.hotel")

    async def plan() -> str:
        async with app.engine.connection("serializable") as connection:
            cursor = await connection.execute(
                "EXPLAIN SELECT available_rooms FROM hotel.hotel WHERE hotel_id = 7"
            )
            return "\n".join(line for (line,) in await cursor.fetchall())

    assert "Seq Scan on hotel" in "\n".join(
        row["QUERY PLAN"]
        for row in app.query("EXPLAIN SELECT * FROM hotel.hotel WHERE hotel_id = 7")
    )
    assert "Index Scan using hotel_pkey" in app.loop.run(plan())
