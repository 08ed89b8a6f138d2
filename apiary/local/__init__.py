"""The private PostgreSQL of `apiary dev` and of the test session."""

from apiary.local.binaries import Installation, find_installation
from apiary.local.cluster import PrivateCluster

__all__ = ["Installation", "PrivateCluster", "find_installation"]
