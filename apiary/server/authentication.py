"""Who calls: bearer tokens, their principals and roles.

A token file, or the environment variable APIARY_TOKENS, has one token a line:

    # token          principal   roles
    7f9c2ba4e88f827d ada         invoke,query
    5ce03fd93f4ae1b2 pipeline    invoke,deploy

Only digests are kept in memory, and every digest is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from ..errors import ConfigurationError, PermissionDenied, Unauthenticated

__all__ = ["LOCAL", "Principal", "Role", "Tokens"]

Role = Literal["invoke", "deploy", "query"]
ROLES: tuple[Role, ...] = get_args(Role)
VARIABLE = "APIARY_TOKENS"
_FIELDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who is calling, and what they may do."""

    name: str
    roles: frozenset[Role]

    def require(self, role: Role | None) -> None:
        """PermissionDenied unless the principal has the role (None: any will do)."""
        if role is not None and role not in self.roles:
            raise PermissionDenied(
                f"{self.name} may not {role}",
                hint=f"use a token whose roles include {role}",
                principal=self.name,
                role=role,
            )


# Whoever reaches a server that listens on this machine only and has no tokens.
LOCAL = Principal(name="local", roles=frozenset(ROLES))


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that a server takes."""

    _known: tuple[tuple[bytes, Principal], ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str, origin: str) -> Tokens:
        """Read token lines; ConfigurationError names ``origin`` and the line."""
        known: list[tuple[bytes, Principal]] = []
        for number, line in enumerate(text.splitlines(), 1):
            fields = line.split("#", 1)[0].split()
            if fields:
                known.append(_token(fields, f"{origin}:{number}"))
        if not known:
            raise ConfigurationError(
                f"{origin} has no token", hint="one a line: token principal role[,role]"
            )
        return cls(tuple(known))

    @classmethod
    def read(cls, file: Path | None, environment: Mapping[str, str]) -> Tokens | None:
        """The tokens of a file, else of APIARY_TOKENS, else None."""
        if file is not None:
            try:
                return cls.parse(file.read_text(encoding="utf-8"), str(file))
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"cannot read the tokens in {file}: {error}") from error
        text = environment.get(VARIABLE)
        return cls.parse(text, VARIABLE) if text else None

    def authenticate(self, authorization: str | bytes | None) -> Principal:
        """The principal of an ``authorization`` header; Unauthenticated for a wrong one."""
        if authorization is None:
            raise Unauthenticated(
                "this server wants a token",
                hint="set APIARY_TOKEN, or send the metadata authorization: Bearer TOKEN",
            )
        text = authorization.decode() if isinstance(authorization, bytes) else authorization
        scheme, _, token = text.partition(" ")
        given = hashlib.sha256(token.strip().encode()).digest()
        found = None
        for digest, principal in self._known:  # to the end, so that time tells nothing
            if hmac.compare_digest(digest, given):
                found = principal
        if found is None or scheme.lower() != "bearer":
            raise Unauthenticated(
                "the token is not known here", hint="check APIARY_TOKEN: Bearer and a known token"
            )
        return found


def _token(fields: Iterable[str], where: str) -> tuple[bytes, Principal]:
    values = tuple(fields)
    if len(values) != _FIELDS:
        raise ConfigurationError(
            f"{where}: {len(values)} words", hint="expected: token principal role[,role]"
        )
    token, name, listed = values
    roles = {role for role in ROLES if role in listed.split(",")}
    unknown = set(listed.split(",")) - roles
    if unknown:
        raise ConfigurationError(
            f"{where}: unknown role {sorted(unknown)[0]!r}", hint=f"roles are {', '.join(ROLES)}"
        )
    digest = hashlib.sha256(token.encode()).digest()
    return digest, Principal(name=name, roles=frozenset(roles))
