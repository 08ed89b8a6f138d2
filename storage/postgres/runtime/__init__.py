"""The runtime inside a PostgreSQL backend: runs function bodies and records them."""
