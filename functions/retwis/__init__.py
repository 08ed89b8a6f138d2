"""Retwis: the Redis tutorial's social network, as Apiary's paper uses it.

90 % timelines (the newest posts of everybody whom a user follows), 10 % posts. `timeline` is kept
in the benchmark's shape: one query for the followees, then one for each of them.
"""

from __future__ import annotations

from apiary import Database, function

POSTS_PER_USER = 10


@function
def post(db: Database, user_id: int, post_id: int, timestamp: int, text: str) -> None:
    """Publish a post."""
    db.execute(
        'INSERT INTO retwis.post (user_id, post_id, "timestamp", post) VALUES ($1, $2, $3, $4)',
        user_id,
        post_id,
        timestamp,
        text,
    )


@function
def follow(db: Database, user_id: int, followee_id: int) -> None:
    """Follow somebody. Following twice is a UniqueViolation."""
    db.execute(
        "INSERT INTO retwis.followee (user_id, followee_id) VALUES ($1, $2)", user_id, followee_id
    )


@function
def posts(db: Database, user_id: int) -> list[str]:
    """The newest ten posts of a user, newest first."""
    return db.values(
        "SELECT post FROM retwis.post WHERE user_id = $1"
        ' ORDER BY "timestamp" DESC, post_id DESC LIMIT $2',
        user_id,
        POSTS_PER_USER,
    )


@function
def timeline(db: Database, user_id: int) -> list[str]:
    """The newest ten posts of each user that this one follows."""
    followees = db.values(
        "SELECT followee_id FROM retwis.followee WHERE user_id = $1 ORDER BY followee_id", user_id
    )
    return [text for followee in followees for text in posts(followee)]
