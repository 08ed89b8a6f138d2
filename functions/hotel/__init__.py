"""Hotel: search by distance, check availability, reserve a room.

The workload of DeathStarBench's hotel service as Apiary's paper uses it: 80 % searches (the six
nearest hotels within 10,000 km, then the availability of each), 20 % reservations. The positions,
which the original keeps in a document store, are a second table here.
"""

from __future__ import annotations

from dataclasses import dataclass

from apiary import Database, function

EARTH_RADIUS_KM = 6371.0
MAX_DISTANCE_KM = 10_000.0
HITS = 6

RESERVED = 0
SOLD_OUT = 1


@dataclass(frozen=True)
class Hit:
    """A hotel with rooms, and how far away it is."""

    hotel_id: int
    hotel_name: str
    distance_km: float
    available_rooms: int


@function
def add_hotel(
    db: Database, hotel_id: int, hotel_name: str, rooms: int, longitude: float, latitude: float
) -> None:
    """Add a hotel, or replace its name, rooms and position."""
    db.execute(
        "INSERT INTO hotel.hotel (hotel_id, hotel_name, available_rooms) VALUES ($1, $2, $3)"
        " ON CONFLICT (hotel_id) DO UPDATE"
        " SET hotel_name = excluded.hotel_name, available_rooms = excluded.available_rooms",
        hotel_id,
        hotel_name,
        rooms,
    )
    db.execute(
        "INSERT INTO hotel.position (hotel_id, longitude, latitude) VALUES ($1, $2, $3)"
        " ON CONFLICT (hotel_id) DO UPDATE"
        " SET longitude = excluded.longitude, latitude = excluded.latitude",
        hotel_id,
        longitude,
        latitude,
    )


@function
def available_rooms(db: Database, hotel_id: int) -> int:
    """How many rooms a hotel has left; 0 for an unknown hotel."""
    return db.value("SELECT available_rooms FROM hotel.hotel WHERE hotel_id = $1", hotel_id) or 0


@function
def search(db: Database, longitude: float, latitude: float) -> list[Hit]:
    """The six nearest hotels within 10,000 km, those of them that have rooms, nearest first."""
    nearest = db.query(
        "SELECT h.hotel_id, h.hotel_name, d.distance_km"
        "  FROM hotel.position p JOIN hotel.hotel h USING (hotel_id),"
        "       LATERAL (SELECT $3 * acos(least(1, greatest(-1,"
        "                   sind(p.latitude) * sind($2) + cosd(p.latitude) * cosd($2)"
        "                   * cosd(p.longitude - $1)))) AS distance_km) d"
        " WHERE d.distance_km <= $4"
        " ORDER BY d.distance_km, h.hotel_id LIMIT $5",
        longitude,
        latitude,
        EARTH_RADIUS_KM,
        MAX_DISTANCE_KM,
        HITS,
    )
    return [
        Hit(row.hotel_id, row.hotel_name, row.distance_km, rooms)
        for row in nearest
        if (rooms := available_rooms(row.hotel_id)) > 0
    ]


@function
def reserve(db: Database, hotel_id: int, customer_id: int) -> int:
    """Take one room: 0 when it is reserved, 1 when the hotel has none left (or is unknown)."""
    rooms = db.value("SELECT available_rooms FROM hotel.hotel WHERE hotel_id = $1", hotel_id)
    if not rooms:
        return SOLD_OUT
    db.execute(
        "UPDATE hotel.hotel SET available_rooms = available_rooms - 1 WHERE hotel_id = $1", hotel_id
    )
    db.execute(
        "INSERT INTO hotel.reservation (hotel_id, customer_id) VALUES ($1, $2)",
        hotel_id,
        customer_id,
    )
    return RESERVED
