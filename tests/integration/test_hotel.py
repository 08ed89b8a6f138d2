"""The hotel application, inside the database."""

from __future__ import annotations

import math

import pytest

from apiary.testing import Platform
from functions import hotel


def test_a_room_is_reserved_until_none_is_left(apiary_app: Platform) -> None:
    apiary_app.call(hotel.add_hotel, 1, "Ritz", rooms=1, longitude=2.3, latitude=48.9)
    assert apiary_app.call(hotel.reserve, hotel_id=1, customer_id=7) == hotel.RESERVED
    assert apiary_app.call(hotel.reserve, hotel_id=1, customer_id=8) == hotel.SOLD_OUT
    assert apiary_app.query("SELECT hotel_id, customer_id FROM hotel.reservation") == [
        {"hotel_id": 1, "customer_id": 7}
    ]


def test_search_gives_the_six_nearest_with_rooms_within_ten_thousand_km(
    apiary_app: Platform,
) -> None:
    for number in range(8):
        apiary_app.call(
            hotel.add_hotel,
            number,
            f"H{number}",
            rooms=number % 2,
            longitude=float(number),
            latitude=0.0,
        )
    apiary_app.call(hotel.add_hotel, 99, "Antipode", rooms=5, longitude=179.0, latitude=0.0)
    hits = apiary_app.call(hotel.search, longitude=0.0, latitude=0.0)
    assert [hit.hotel_id for hit in hits] == [1, 3, 5]
    assert hits[0].distance_km == pytest.approx(2 * math.pi * hotel.EARTH_RADIUS_KM / 360)
