"""Deploying: what is stored, what is refused, what can be called afterwards."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apiary.authoring.application import Application
from apiary.authoring.bundle import Bundle, build_bundle
from apiary.engine.base import Invocation
from apiary.engine.deploying import deploy, rollback
from apiary.errors import ConfigurationError, ConflictError, DeployError, FunctionError, NotFound
from apiary.testing import Platform, TestServer

BundleOf = Callable[..., Bundle]
MakeApp = Callable[..., Platform]

TABLE = "CREATE TABLE box.item (id int PRIMARY KEY, n int NOT NULL);"


def function(answer: int) -> str:
    return f"""
        from apiary import Database, function

        @function
        def answer(db: Database) -> int:
            return {answer}

        @function
        def put(db: Database, id: int, n: int) -> int:
            return db.execute("INSERT INTO box.item (id, n) VALUES ($1, $2)", id, n)
    """


def version(answer: int, **scripts: str) -> dict[str, str]:
    files = {"functions/box/__init__.py": function(answer)}
    files["functions/box/sql/001_tables.sql"] = TABLE
    return files | {f"functions/box/sql/{name}.sql": text for name, text in scripts.items()}


@pytest.fixture(scope="module")
def unchanged(make_shared_app: MakeApp) -> Iterator[Platform]:
    """Version 1, for deploys that are refused; at the end it must be what it was."""
    app = make_shared_app(version(1))
    yield app
    assert app.call("box.answer") == 1
    assert app.query("SELECT * FROM box.item") == []
    assert len(app.query("SELECT * FROM apiary.deployment")) == 1


def connect(url: str, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True, **options)


def call_at(platform: Platform, deployment: str | None, name: str, **arguments: Any) -> Any:
    invocation = Invocation(
        run_id=f"call-{deployment}-{name}-{json.dumps(arguments)}",
        application="app",
        deployment=deployment,
        function=name,
        input=json.dumps(arguments),
        principal="test",
    )
    return platform.loop.run(platform.invoker.invoke(invocation, fresh=True)).output


def test_the_same_content_is_the_same_deployment_and_deploying_it_again_does_nothing(
    make_app: MakeApp, bundle_of: BundleOf
) -> None:
    app = make_app(version(1))
    with connect(app.url) as connection:
        before = connection.execute("SELECT count(*) FROM apiary.activation").fetchone()
        again = deploy(connection, bundle_of(version(1)), principal="test")
        after = connection.execute("SELECT count(*) FROM apiary.activation").fetchone()
    assert not again.changed
    assert again.previous == again.deployment
    assert before == after == (1,)


def test_a_new_version_serves_at_once_and_the_old_one_stays_callable(
    make_app: MakeApp, bundle_of: BundleOf
) -> None:
    app = make_app(version(1))
    assert app.call("box.answer") == 1
    with connect(app.url) as connection:
        new = deploy(connection, bundle_of(version(2)), principal="test")
    assert new.changed
    assert app.call("box.answer") == 2
    assert call_at(app, new.previous, "box.answer") == 1
    assert call_at(app, new.deployment, "box.answer") == 2


def test_a_transaction_from_before_a_deploy_is_told_to_begin_again(
    make_app: MakeApp, bundle_of: BundleOf
) -> None:
    app = make_app(version(1))
    with psycopg.connect(app.url) as old:
        old.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        old.execute("SELECT count(*) FROM pg_catalog.pg_class")  # its snapshot is taken
        with connect(app.url) as connection:
            deploy(connection, bundle_of(version(2)), principal="test")
        with pytest.raises(psycopg.errors.SerializationFailure, match="deployed meanwhile"):
            old.execute("SELECT box.answer()")
        old.rollback()
        assert old.execute("SELECT box.answer()::text").fetchone() == ("2",)


def test_a_level_of_provenance_that_is_changed_counts_from_the_next_call(make_app: MakeApp) -> None:
    code = """
        from apiary import Database, function

        @function
        def look(db: Database) -> int:
            return db.execute("SELECT 1 FROM box.item")
    """
    app = make_app(version(1) | {"functions/box/__init__.py": code}, provenance="writes")
    reads = "SELECT count(*) AS n FROM provenance.data_event WHERE operation = 'R'"
    app.call("box.look")
    assert app.query(reads) == [{"n": 0}]
    with connect(app.url) as connection:
        connection.execute("UPDATE apiary.application SET provenance = 'full'")
    app.call("box.look")
    assert app.query(reads) == [{"n": 1}]


def test_the_order_of_scripts_is_their_number_and_each_is_applied_once(
    make_app: MakeApp, bundle_of: BundleOf
) -> None:
    app = make_app(version(1, **{"010_b": "INSERT INTO box.item VALUES (1, 10);"}))
    more = version(
        1,
        **{
            "010_b": "INSERT INTO box.item VALUES (1, 10);",
            "1000_d": "UPDATE box.item SET n = n + 1;",
            "020_c": "UPDATE box.item SET n = n * 2;",
        },
    )
    with connect(app.url) as connection:
        deployed = deploy(connection, bundle_of(more), principal="test")
    assert deployed.scripts == ("functions/box/sql/020_c.sql", "functions/box/sql/1000_d.sql")
    assert app.query("SELECT n FROM box.item") == [{"n": 21}]


def test_an_edited_script_is_refused_and_nothing_changes(
    unchanged: Platform, bundle_of: BundleOf
) -> None:
    edited = version(2) | {"functions/box/sql/001_tables.sql": TABLE + " -- edited"}
    with (
        connect(unchanged.url) as connection,
        pytest.raises(ConflictError, match="was edited") as caught,
    ):
        deploy(connection, bundle_of(edited), principal="test")
    assert caught.value.file == "functions/box/sql/001_tables.sql"
    assert unchanged.call("box.answer") == 1


@pytest.mark.parametrize(
    ("script", "line", "message"),
    [
        ("SELECT 1;\nSELECT 2;\nCOMMIT;", 3, "COMMIT in a table script"),
        ("SELECT 1;\n\nCREATE TABLE box.t (a int,\n  b wrong);", 4, 'type "wrong" does not exist'),
        ("SELECT 1;\nCREATE TABLE box.item ();", 2, 'relation "item" already exists'),
        ("--\n\nSELEC 1;", 3, "syntax error"),
        ("DO $$ BEGIN\n COMMIT; END $$;", 1, "invalid transaction termination"),
        ("SELECT 1;\nINSERT INTO box.item VALUES (1,1),\n(1, 1);", 2, "unique"),
    ],
)
def test_an_error_in_a_script_has_file_and_line(
    unchanged: Platform, bundle_of: BundleOf, script: str, line: int, message: str
) -> None:
    with connect(unchanged.url) as connection, pytest.raises(DeployError, match=message) as caught:
        deploy(connection, bundle_of(version(2, **{"002_wrong": script})), principal="test")
    assert (caught.value.file, caught.value.line) == ("functions/box/sql/002_wrong.sql", line)
    assert unchanged.call("box.answer") == 1
    assert unchanged.query("SELECT * FROM box.item") == []


def test_a_statement_is_checked_against_the_real_tables(
    unchanged: Platform, bundle_of: BundleOf
) -> None:
    wrong = version(2) | {
        "functions/box/more.py": """
            from apiary import Database, function

            @function
            def wrong(db: Database) -> int:
                return db.value("SELECT nn FROM box.item")
        """
    }
    with connect(unchanged.url) as connection, pytest.raises(DeployError, match='"nn"') as caught:
        deploy(connection, bundle_of(wrong), principal="test")
    assert (caught.value.file, caught.value.line) == ("functions/box/more.py", 5)
    assert unchanged.call("box.answer") == 1


def test_an_import_that_the_database_lacks_is_named(
    unchanged: Platform, bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_here = tmp_path / "only_here"
    only_here.mkdir()
    (only_here / "module_of_the_client.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(str(only_here))
    text = "import module_of_the_client\n" + "\n".join(
        line[8:] for line in function(2).splitlines()
    )
    wrong = bundle_of(version(2) | {"functions/box/__init__.py": text})
    with connect(unchanged.url) as connection, pytest.raises(DeployError) as caught:
        deploy(connection, wrong, principal="test")
    assert caught.value.module == "module_of_the_client"
    assert "module_of_the_client" in caught.value.message
    assert unchanged.call("box.answer") == 1


def test_an_import_that_exists_nowhere_is_refused_before_anything_is_sent(
    bundle_of: BundleOf,
) -> None:
    text = "import nothing_of_that_name\n"
    with pytest.raises(DeployError, match="nothing_of_that_name"):
        bundle_of({"functions/box/__init__.py": text})


def test_an_exception_while_a_module_is_imported_has_file_and_line(bundle_of: BundleOf) -> None:
    with pytest.raises(DeployError, match="ZeroDivisionError") as caught:
        bundle_of({"functions/box/__init__.py": "x = 1\ny = 1 / 0\n"})
    assert (caught.value.file, caught.value.line) == ("functions/box/__init__.py", 2)


def test_a_syntax_error_has_file_and_line(bundle_of: BundleOf) -> None:
    with pytest.raises(DeployError) as caught:
        bundle_of({"functions/box/__init__.py": "x = 1\ndef f(:\n"})
    assert (caught.value.file, caught.value.line) == ("functions/box/__init__.py", 2)


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("functions/box/a.py", "@function\nasync def f(db: Database) -> None: ...", "is async"),
        ("functions/box/a.py", "@step\ndef f() -> None: ...", "under functions/"),
        ("functions/box/a.py", "@workflow\ndef f() -> None: ...", "under functions/"),
        ("workflows/box/a.py", "def f() -> None: ...\nfor _ in '1': g = step(f)", "f"),
        ("functions/box/a.py", "@function\ndef f(db: Database, x: object()) -> None: ...", "x"),
    ],
)
def test_what_the_analysis_could_not_see_is_refused(
    bundle_of: BundleOf, path: str, code: str, message: str
) -> None:
    header = "from apiary import Database, function, step, workflow\n"
    with pytest.raises(DeployError, match=message):
        bundle_of({path: header + code + "\n"})


def test_modules_of_the_application_are_importable_in_every_form(make_app: MakeApp) -> None:
    app = make_app(
        {
            "functions/box/rates.py": "RATE = 7\n__all__ = ['RATE']\n",
            "functions/box/shapes.py": """
                from __future__ import annotations
                from dataclasses import dataclass
                from enum import Enum

                class Colour(Enum):
                    RED = "red"

                @dataclass(frozen=True)
                class Shape:
                    name: str
                    colour: Colour
                    inner: Shape | None = None
            """,
            "functions/other/__init__.py": """
                from functions.box import rates
                DOUBLE = 2 * rates.RATE
            """,
            "shared/tools.py": "def triple(x):\n    return 3 * x\n",
            "apiary.toml": 'name = "app"\npackages = ["shared"]\n',
            "functions/box/__init__.py": """
                from __future__ import annotations
                import functions.box.rates
                from apiary import Database, function
                from functions.box import rates as by_name
                from functions.other import DOUBLE
                from shared.tools import triple
                from . import rates as relative
                from .rates import *
                from .rates import RATE as constant
                from .shapes import Colour, Shape

                @function
                def numbers(db: Database) -> list[int]:
                    here = functions.box.rates.RATE
                    return [here, by_name.RATE, relative.RATE, RATE, constant, DOUBLE, triple(1)]

                @function
                def wrap(db: Database, shape: Shape) -> Shape:
                    assert isinstance(shape, Shape) and shape.colour is Colour.RED
                    return Shape("outer", Colour.RED, shape)
            """,
        }
    )
    assert app.call("box.numbers") == [7, 7, 7, 7, 7, 14, 3]
    assert app.call("box.wrap", shape={"name": "a", "colour": "red"})["inner"]["name"] == "a"


def test_code_runs_from_the_database_not_from_its_folder(
    apiary_server: TestServer, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    for path, text in {
        "apiary.toml": 'name = "app"\n',
        "functions/box/constants.py": "ANSWER = 42\n",
        "functions/box/__init__.py": (
            "from apiary import Database, function\n"
            "@function\n"
            "def answer(db: Database) -> int:\n"
            "    from functions.box.constants import ANSWER  # on the first call\n"
            "    return ANSWER\n"
        ),
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    bundle = Bundle.from_json(build_bundle(Application.read(folder)).to_json())
    shutil.rmtree(folder)
    database = apiary_server.create_database(bundle)
    platform = Platform(apiary_server.url(database), "app")
    try:
        assert platform.call("box.answer") == 42
    finally:
        platform.close()
        apiary_server.drop_database(database)


def test_the_schema_of_another_application_is_refused(
    make_app: MakeApp, bundle_of: BundleOf
) -> None:
    app = make_app(version(1), name="first")
    with connect(app.url) as connection, pytest.raises(ConflictError, match=r"belongs to .*first"):
        deploy(connection, bundle_of(version(1), name="second"), principal="test")
    assert app.query("SELECT name FROM apiary.application") == [{"name": "first"}]


def test_a_schema_that_is_not_an_applications_is_refused(
    empty_database: str, bundle_of: BundleOf
) -> None:
    with connect(empty_database) as connection:
        connection.execute("CREATE SCHEMA box")
        with pytest.raises(ConflictError, match="belongs to no application"):
            deploy(connection, bundle_of(version(1)), principal="test")


def test_rollback_goes_back_step_by_step(make_app: MakeApp, bundle_of: BundleOf) -> None:
    app = make_app(version(1))
    with connect(app.url) as connection:
        for answer in (2, 3):
            deploy(connection, bundle_of(version(answer)), principal="test")
        for answer in (2, 1):
            back = rollback(connection, "app", principal="test")
            assert (back.changed, app.call("box.answer")) == (True, answer)
        with pytest.raises(NotFound, match="no deployment before"):
            rollback(connection, "app", principal="test")
        deploy(connection, bundle_of(version(3)), principal="test")
        assert app.call("box.answer") == 3
        deploy(connection, bundle_of(version(4)), principal="test")
        for answer in (3, 1):
            rollback(connection, "app", principal="test")
            assert app.call("box.answer") == answer
        with pytest.raises(NotFound):
            rollback(connection, "app", principal="test")
        with pytest.raises(NotFound, match="no application"):
            rollback(connection, "unknown", principal="test")


def test_check_only_changes_nothing_and_finds_what_a_deploy_would(
    make_app: MakeApp, bundle_of: BundleOf, dump: Callable[[str], Any]
) -> None:
    app = make_app(version(1))
    before = dump(app.url)
    more = version(2, **{"002_more": "CREATE TABLE box.more ();"})
    with connect(app.url) as connection:
        checked = deploy(connection, bundle_of(more), principal="test", check_only=True)
        assert checked.changed
        assert checked.scripts == ("functions/box/sql/002_more.sql",)
        wrong = version(2, **{"002_more": "SELECT nothing"})
        with pytest.raises(DeployError):
            deploy(connection, bundle_of(wrong), principal="test", check_only=True)
    assert dump(app.url) == before
    assert app.call("box.answer") == 1


def test_two_first_deploys_at_once_both_end_well(empty_database: str, bundle_of: BundleOf) -> None:
    bundles = [bundle_of(version(answer)) for answer in (1, 2)]
    failures: list[BaseException] = []

    def run(bundle: Bundle) -> None:
        try:
            with connect(empty_database) as connection:
                deploy(connection, bundle, principal="test")
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(bundle,)) for bundle in bundles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with connect(empty_database) as connection:
        rows = connection.execute("SELECT deployment FROM apiary.activation ORDER BY id").fetchall()
        current = connection.execute("SELECT current FROM apiary.application").fetchall()
    assert {row[0] for row in rows} == {bundle.id for bundle in bundles}
    assert current == [rows[-1]]


def test_a_function_that_nothing_can_travel_to_is_refused(bundle_of: BundleOf) -> None:
    code = """
        import threading
        from apiary import Database, function

        @function
        def f(db: Database, lock: threading.Lock) -> None: ...
    """
    with pytest.raises(DeployError, match=r"args\.lock"):
        bundle_of({"functions/box/__init__.py": code})


def test_unreadable_applications_are_refused(tmp_path: Path, bundle_of: BundleOf) -> None:
    with pytest.raises(ConfigurationError, match="no application"):
        Application.read(tmp_path)
    with pytest.raises(ConfigurationError, match="packages"):
        bundle_of(version(1) | {"apiary.toml": 'name = "app"\npackages = "shared"\n'})
    folder = tmp_path / "latin"
    (folder / "functions/box").mkdir(parents=True)
    (folder / "functions/box/__init__.py").write_bytes(b"x = '\xe9'\n")
    with pytest.raises(DeployError, match="not UTF-8"):
        Application.read(folder)


# Calling by SQL


SQL_FUNCTIONS = """
    from datetime import date, datetime, timedelta
    from decimal import Decimal
    from typing import Any
    from uuid import UUID
    from apiary import ApplicationError, Database, function

    class Refused(ApplicationError):
        code = "REFUSED"

    @function
    def put(db: Database, id: int) -> int:
        db.execute("INSERT INTO box.item (id, n) VALUES ($1, 0)", id)
        return id

    @function
    def refuse(db: Database) -> None:
        raise Refused("not today")

    @function
    def types(
        db: Database, i: int, f: float, g: float, b: bool, s: str, y: bytes, d: Decimal, day: date,
        at: datetime, long: timedelta, u: UUID, many: list[int], none: int | None,
        no_time: timedelta | None,
    ) -> str:
        return repr([i, f, g, b, s, len(y), d, day, at, long, u, many, none, no_time])
"""


def test_plain_sql_calls_a_function_with_typed_parameters_and_it_is_recorded(
    make_app: MakeApp,
) -> None:
    app = make_app(
        {
            "functions/box/__init__.py": SQL_FUNCTIONS,
            "functions/box/sql/001_tables.sql": TABLE,
        }
    )
    with connect(app.url) as connection:
        with pytest.raises(psycopg.Error, match="runs at serializable"):
            connection.execute("SELECT box.put(5)")
        connection.execute("SET default_transaction_isolation = serializable")
        assert connection.execute("SELECT box.put(5)").fetchone() == (5,)
        with pytest.raises(psycopg.Error, match="Refused: not today") as caught:
            connection.execute("SELECT box.refuse()")
        assert json.loads(str(caught.value.diag.message_detail))["code"] == "REFUSED"
        with pytest.raises(psycopg.errors.UndefinedFunction):
            connection.execute("SELECT box.put('five'::text)")
        row = connection.execute(
            "SELECT box.types(1, 0.5, 'NaN', true, 'é', decode(repeat('00', 100), 'hex'), 1.10,"
            " '2026-01-02', '2026-01-02 03:04:05.000006+00', '1 day 0.000001 s',"
            " '00000000-0000-0000-0000-000000000001', '[1, 2]', NULL, NULL)"
        ).fetchone()
    assert row == (
        "[1, 0.5, nan, True, 'é', 100, Decimal('1.10'), datetime.date(2026, 1, 2), "
        "datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc), "
        "datetime.timedelta(days=1, microseconds=1), "
        "UUID('00000000-0000-0000-0000-000000000001'), [1, 2], None, None]",
    )
    assert app.query("SELECT id FROM box.item") == [{"id": 5}]
    recorded = app.query("SELECT function, status FROM provenance.invocation ORDER BY function")
    assert [row["function"] for row in recorded] == ["box.put", "box.types"]


def test_several_calls_in_one_transaction_commit_or_vanish_together(make_app: MakeApp) -> None:
    app = make_app(version(1))
    with psycopg.connect(app.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.execute("SELECT box.put(1, 1), box.put(2, 2)")
        connection.rollback()
        connection.execute("SELECT box.put(3, 3)")
    assert app.query("SELECT id FROM box.item") == [{"id": 3}]
    assert len(app.query("SELECT 1 FROM provenance.invocation")) == 1


def test_an_unknown_function_is_named_with_its_nearest(unchanged: Platform) -> None:
    with pytest.raises(NotFound, match=r"box\.answr") as caught:
        unchanged.call("box.answr")
    assert "box.answer" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("level", "events"), [("off", []), ("writes", ["I"]), ("full", ["I", "R"])]
)
def test_provenance_levels(make_app: MakeApp, level: str, events: list[str]) -> None:
    code = """
        from apiary import Database, function

        @function
        def both(db: Database) -> int:
            db.execute("INSERT INTO box.item (id, n) VALUES (1, 2)")
            return db.value("SELECT n FROM box.item WHERE id = 1")
    """
    app = make_app(version(1) | {"functions/box/__init__.py": code}, provenance=level)
    assert app.call("box.both") == 2
    seen = app.query("SELECT operation FROM provenance.data_event ORDER BY operation")
    assert [row["operation"] for row in seen] == events
    assert len(app.query("SELECT 1 FROM provenance.invocation")) == 1


def test_an_error_of_a_call_by_name_is_a_function_error(make_app: MakeApp) -> None:
    files = {"functions/box/__init__.py": SQL_FUNCTIONS, "functions/box/sql/001_tables.sql": TABLE}
    app = make_app(files)
    with pytest.raises(FunctionError) as caught:
        app.call("box.refuse")
    error = caught.value
    assert (error.type, error.code, error.details, error.declared) == (
        "Refused",
        "REFUSED",
        {},
        True,
    )
