CREATE TABLE hotel.hotel (
    hotel_id        int PRIMARY KEY,
    hotel_name      varchar(1000) NOT NULL,
    available_rooms int NOT NULL CHECK (available_rooms >= 0)
);

CREATE TABLE hotel.position (
    hotel_id    int PRIMARY KEY REFERENCES hotel.hotel,
    longitude   double precision NOT NULL CHECK (longitude BETWEEN -180 AND 180),
    latitude    double precision NOT NULL CHECK (latitude BETWEEN -90 AND 90)
);

CREATE TABLE hotel.reservation (
    reservation_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hotel_id        int NOT NULL REFERENCES hotel.hotel,
    customer_id     int NOT NULL
);
CREATE INDEX reservation_customer_id_idx ON hotel.reservation (customer_id);
