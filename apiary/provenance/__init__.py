"""The log of what ran and which rows it touched, from Python."""

from .tables import attempt, data_event, invocation, metadata, operation, run, write_event

__all__ = ["attempt", "data_event", "invocation", "metadata", "operation", "run", "write_event"]
