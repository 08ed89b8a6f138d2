"""Shop: browse, put into the cart, check out.

The workload of the Google Cloud demo shop as Apiary's paper uses it: 90 % get_item (search a text
under a price and put the first hit into the cart), 8 % checkout, 1 % new items, 1 % price updates.
The text search, which the original leaves to a search engine, is a text index here.
"""

from __future__ import annotations

from apiary import Database, function

ADDED = 0
NONE_LEFT = 1
NO_SUCH_ITEM = -1


@function
def add_item(
    db: Database, item_id: int, item_name: str, item_desc: str, cost: int, inventory: int
) -> None:
    """Add an item, or replace an existing one."""
    db.execute(
        "INSERT INTO shop.item (item_id, item_name, item_desc, cost, inventory)"
        " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (item_id) DO UPDATE"
        " SET item_name = excluded.item_name, item_desc = excluded.item_desc,"
        "     cost = excluded.cost, inventory = excluded.inventory",
        item_id,
        item_name,
        item_desc,
        cost,
        inventory,
    )


@function
def set_price(db: Database, item_id: int, cost: int) -> bool:
    """Change an item's price; false when there is no such item."""
    return db.execute("UPDATE shop.item SET cost = $2 WHERE item_id = $1", item_id, cost) > 0


@function
def search(db: Database, text: str, max_cost: int) -> int | None:
    """The cheapest item under ``max_cost`` whose name or description has all the words."""
    found: int | None = db.value(
        "SELECT item_id FROM shop.item"
        " WHERE words @@ plainto_tsquery('english', $1) AND cost <= $2"
        " ORDER BY cost, item_id LIMIT 1",
        text,
        max_cost,
    )
    return found


@function
def add_to_cart(db: Database, person_id: int, item_id: int) -> int:
    """Put one piece into a cart: 0 done, 1 when none is left, -1 when there is no such item."""
    item = db.first("SELECT cost, inventory FROM shop.item WHERE item_id = $1", item_id)
    if item is None:
        return NO_SUCH_ITEM
    if item.inventory < 1:
        return NONE_LEFT
    db.execute(
        "INSERT INTO shop.cart (person_id, item_id, cost) VALUES ($1, $2, $3)",
        person_id,
        item_id,
        item.cost,
    )
    db.execute("UPDATE shop.item SET inventory = inventory - 1 WHERE item_id = $1", item_id)
    return ADDED


@function
def get_item(db: Database, person_id: int, text: str, max_cost: int) -> int:
    """Search, and put the first hit into the cart; results as of `add_to_cart`."""
    item_id = search(text, max_cost)
    return NO_SUCH_ITEM if item_id is None else add_to_cart(person_id, item_id)


@function
def checkout(db: Database, person_id: int) -> int:
    """Turn the cart into an order; return its sum. An empty cart makes an order of 0.

    The order's id is the transaction's, which is unique in a database.
    """
    order_id = db.value("SELECT pg_current_xact_id()::text::bigint")
    db.execute(
        "INSERT INTO shop.order_line (line_id, person_id, order_id, item_id)"
        " SELECT line_id, person_id, $2, item_id FROM shop.cart WHERE person_id = $1",
        person_id,
        order_id,
    )
    total: int = db.value(
        "SELECT coalesce(sum(cost), 0)::bigint FROM shop.cart WHERE person_id = $1", person_id
    )
    db.execute(
        "INSERT INTO shop.transaction (order_id, person_id, cost) VALUES ($1, $2, $3)",
        order_id,
        person_id,
        total,
    )
    db.execute("DELETE FROM shop.cart WHERE person_id = $1", person_id)
    return total
