CREATE TABLE retwis.post (
    user_id     int NOT NULL,
    post_id     int NOT NULL,
    "timestamp" int NOT NULL,
    post        varchar(1000) NOT NULL,
    PRIMARY KEY (user_id, post_id)
);
CREATE INDEX post_user_id_timestamp_idx ON retwis.post (user_id, "timestamp");

CREATE TABLE retwis.followee (
    user_id     int NOT NULL,
    followee_id int NOT NULL,
    PRIMARY KEY (user_id, followee_id)
);
