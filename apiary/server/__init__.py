"""The gRPC server: it authenticates, checks requests, maps errors, and asks `execution`."""

from .authentication import Tokens
from .main import Server, serve
from .processes import serve_processes
from .settings import ServerSettings

__all__ = ["Server", "ServerSettings", "Tokens", "serve", "serve_processes"]
