"""DBOS Transact 3: workflows of datasource transactions, as its documentation shows them.

State and data are in one database. Transactions are at its default, SERIALIZABLE. The body uses
the session's own psycopg connection, which spares DBOS the ORM.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ..plain import POOL_SIZE, Application
from ..workloads import CHAINS, FAN_OUT, Request
from .base import Adapter, Threads, missing_peer

try:
    from dbos import DBOS, SQLAlchemyDatasource
    from sqlalchemy.exc import DBAPIError
except ImportError as error:
    raise missing_peer(error) from error

__all__ = ["Dbos"]


class Dbos(Adapter):
    """One DBOS application."""

    async def open(self, url: str) -> None:
        self._threads = Threads()
        await self._threads.run(self._launch, url)

    def _launch(self, url: str) -> None:
        logging.getLogger("dbos").setLevel(logging.ERROR)
        parts = conninfo_to_dict(url)
        address = (
            f"postgresql+psycopg://{parts['user']}:{parts['password']}"
            f"@{parts['host']}:{parts['port']}/{parts['dbname']}"
        )
        DBOS(
            config={
                "name": "bench",
                "system_database_url": address,
                "sys_db_pool_size": POOL_SIZE,
                "log_level": "ERROR",
            }
        )
        engine_kwargs = {"pool_size": POOL_SIZE, "max_overflow": 0}
        source = SQLAlchemyDatasource.create(address, engine_kwargs=engine_kwargs)
        application = Application()

        @source.transaction()
        def transact(target: str, arguments: dict[str, Any]) -> Any:
            connection = source.sql_session().connection().connection.driver_connection
            assert connection is not None
            try:
                return application.run(connection, target, arguments)
            except psycopg.Error as error:
                # As SQLAlchemy would have said it, which is what DBOS tries again for.
                raise DBAPIError.instance(None, None, error, psycopg.Error) from error

        def transfer(base: int, start: int, number: int, amount: int = 1) -> int:
            arguments = application.transfer(base, start, number, amount)
            result: int = transact("bench.transfer", arguments)
            return result

        @DBOS.step()
        def quote(number: int) -> int:
            return application.quote(number)

        @DBOS.workflow()
        def function(target: str, arguments: dict[str, Any]) -> Any:
            return transact(target, arguments)

        @DBOS.workflow()
        def chain(base: int, start: int, count: int) -> int:
            return sum(transfer(base, start, number) for number in range(count))

        @DBOS.workflow()
        def child(base: int, start: int, number: int) -> int:
            return transfer(base, start, number)

        @DBOS.workflow()
        def fan_out(base: int, start: int) -> int:
            begun = [DBOS.start_workflow(child, base, start, n) for n in range(FAN_OUT)]
            return sum(handle.get_result() for handle in begun)

        @DBOS.workflow()
        def mixed(base: int, start: int) -> int:
            total = transfer(base, start, 0)
            return total + transfer(base, start, 0, quote(start))

        self._function, self._chain, self._fan_out = function, chain, fan_out
        self._mixed = mixed
        DBOS.launch()

    async def close(self) -> None:
        self._threads.close()
        DBOS.destroy()

    async def call(self, request: Request) -> Any:
        run = self._threads.run
        if not request.is_workflow:
            return await run(self._function, request.target, request.arguments)
        base, start = request.arguments["base"], request.arguments["start"]
        if request.target in CHAINS:
            return await run(self._chain, base, start, CHAINS[request.target])
        workflow = self._mixed if request.target == "bench.mixed" else self._fan_out
        return await run(workflow, base, start)
