"""Which application has a function, for requests that name none."""

from __future__ import annotations

from ..engine.catalogue import Catalogue

__all__ = ["Applications"]


class Applications:
    """Remembers the application of each domain: a domain belongs to one, for good."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: dict[str, str] = {}

    async def of(self, function: str) -> str:
        """The application that has ``function``; NotFound when none has its domain."""
        domain = function.partition(".")[0]
        application = self._known.get(domain)
        if application is None:
            application = await self._catalogue.application_of(function)
            self._known[domain] = application
        return application
