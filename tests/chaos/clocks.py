"""The database's clock, moved."""

from __future__ import annotations

import psycopg


def set_clock(url: str, offset: str) -> None:
    """Let the database's clock be off by an interval: for every session at once, as a real jump."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET apiary.clock_offset = '{offset}'".encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
