"""Authoring: signatures, values and failures of the functions that users write."""
