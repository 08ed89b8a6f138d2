"""Invoking functions over gRPC."""

from __future__ import annotations

from apiary.client import Client
from functions import hotel


def test_a_function_is_called_by_itself_and_by_name(client: Client) -> None:
    client.call(hotel.add_hotel, 1, "Ritz", rooms=1, longitude=2.3, latitude=48.9)
    assert client.call(hotel.reserve, hotel_id=1, customer_id=7) == hotel.RESERVED
    assert client.call("hotel.reserve", hotel_id=1, customer_id=8) == hotel.SOLD_OUT
    assert client.call(hotel.search, longitude=2.3, latitude=48.9) == []
