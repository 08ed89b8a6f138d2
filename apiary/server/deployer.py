"""Deploying for a client, with the role that may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from ..authoring.bundle import Bundle
from ..engine.deploying import Deployed, deploy, remove_deployment, rollback
from ..engine.sqlstates import translate
from ..errors import BadArgument, PermissionDenied
from ..execution.checking_replay import ReplayReport, check_replays

__all__ = ["Deployer"]

T = TypeVar("T")


class Deployer:
    """Runs deploys, each in a thread and on a connection of its own."""

    def __init__(self, url: str | None) -> None:
        self._url = url

    async def deploy(self, bundle_text: str, *, principal: str) -> Deployed:
        """Store a bundle and let it serve."""
        bundle = _bundle(bundle_text)
        return await self._run(lambda connection: deploy(connection, bundle, principal=principal))

    async def check(self, bundle_text: str, *, principal: str) -> tuple[Deployed, ReplayReport]:
        """Deploy a bundle and undo it; then replay unfinished runs with its code."""
        bundle = _bundle(bundle_text)

        def work(connection: psycopg.Connection[Any]) -> tuple[Deployed, ReplayReport]:
            deployed = deploy(connection, bundle, principal=principal, check_only=True)
            return deployed, check_replays(connection, bundle)

        return await self._run(work)

    async def remove(self, application: str, deployment: str) -> None:
        """Remove a deployment that nothing needs."""
        await self._run(lambda connection: remove_deployment(connection, application, deployment))

    async def rollback(self, application: str, *, principal: str) -> Deployed:
        """Let the deployment before the current one serve again."""
        return await self._run(
            lambda connection: rollback(connection, application, principal=principal)
        )

    async def _run(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        if self._url is None:
            raise PermissionDenied(
                "this server has no database role that may deploy",
                hint="start it with a deploy URL (of a member of apiary_deployer), or deploy "
                "straight into the database: apiary deploy --database-url URL",
            )
        return await asyncio.to_thread(self._run_there, self._url, work)

    def _run_there(self, url: str, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        try:
            with psycopg.connect(url, autocommit=True, application_name="apiary deploy") as opened:
                return work(opened)
        except psycopg.errors.InsufficientPrivilege as error:
            raise PermissionDenied(
                f"the server's deploying role may not deploy: {error}",
                hint="its deploy URL has to name a member of apiary_deployer",
            ) from error
        except psycopg.Error as error:
            raise translate(error) from error


def _bundle(text: str) -> Bundle:
    try:
        return Bundle.from_json(text)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise BadArgument(
            f"bundle is none: {type(error).__name__}: {error}",
            hint="build it with apiary.authoring.bundle.build_bundle, of this version of apiary",
            path="bundle",
        ) from error
