"""What static analysis says about small applications."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

from apiary.authoring.analysis import Analysis, Module, analyse
from apiary.errors import DeployError

HEADER = "from apiary import Database, function, step, workflow\n"


def application(**sources: str) -> Analysis:
    """Analyse modules given by name with `__` for a dot; a leading line is not counted."""
    return analyse(
        Module(name.replace("__", "."), name.replace("__", "/") + ".py", dedent(source).lstrip())
        for name, source in sources.items()
    )


def one_function(body: str, before: str = "") -> Analysis:
    """An application with the function hotel.f, whose body is given."""
    lines = dedent(body).strip().replace("\n", "\n    ")
    source = f"{HEADER}{dedent(before)}\n@function\ndef f(db: Database, a: int):\n    {lines}\n"
    return analyse([Module("functions.hotel", "hotel.py", source)])


def problems(analysis: Analysis) -> list[str]:
    return [f"{each.file}:{each.line}: {each.message}" for each in analysis.problems]


# The example of the design


def test_the_example() -> None:
    found = application(
        functions__hotel="""
            from apiary import Database, function

            @function
            def reserve(db: Database, hotel_id: int, day: date, customer: str) -> Booking:
                left = db.value(
                    "SELECT rooms_left FROM hotel.room_day"
                    " WHERE hotel_id = $1 AND day = $2",
                    hotel_id, day)
                if not left:
                    raise SoldOut(hotel_id, day)
                return db.one("INSERT INTO booking VALUES ($1, $2, $3) RETURNING *",
                              hotel_id, day, customer)

            @function(isolation="repeatable read")
            def rooms_left(db: Database, hotel_id: int) -> int:
                return db.value("SELECT rooms_left FROM room_day WHERE hotel_id = $1", hotel_id)
            """,
        workflows__trips="""
            from apiary import step, workflow, sleep
            from functions import hotel

            @step(retries=3)
            def charge(card: str, amount: Decimal) -> str: ...

            @workflow
            def book_trip(customer: str, hotel_id: int, day: date) -> Receipt:
                booking = hotel.reserve(hotel_id, day, customer)
                receipt = charge(customer, booking.price)
                sleep(1)
                return Receipt(booking.id, receipt)

            @workflow
            def book(customer: str, hotel_id: int, day: date) -> int:
                hotel.reserve(hotel_id, day, customer)
                return hotel.rooms_left(hotel_id)
            """,
    )
    assert found.problems == ()
    reserve = found.functions["hotel.reserve"]
    assert (reserve.module, reserve.qualname) == ("functions.hotel", "reserve")
    assert (reserve.file, reserve.line) == ("functions/hotel.py", 4)
    assert reserve.reads == {"hotel.room_day"}
    assert reserve.writes == {"hotel.booking"}
    assert not reserve.read_only
    assert not reserve.dynamic
    first, second = reserve.statements
    assert first.sql == "SELECT rooms_left FROM hotel.room_day WHERE hotel_id = $1 AND day = $2"
    assert (first.file, first.line, first.kind, first.parameters) == (
        "functions/hotel.py",
        6,
        "read",
        2,
    )
    assert (second.line, second.kind, second.parameters) == (11, "write", 3)
    assert found.functions["hotel.rooms_left"].read_only
    charge = found.steps["trips.charge"]
    assert (charge.module, charge.file, charge.line) == ("workflows.trips", "workflows/trips.py", 5)
    book_trip = found.workflows["trips.book_trip"]
    assert book_trip.functions == {"hotel.reserve"}
    assert book_trip.steps == {"trips.charge"}
    assert book_trip.uses == {"sleep"}
    assert not book_trip.in_database
    assert [(reason.line, reason.why) for reason in book_trip.reasons][:2] == [
        (10, "it calls the step trips.charge"),
        (11, "it uses sleep"),
    ]
    book = found.workflows["trips.book"]
    assert book.in_database
    assert book.reasons == ()
    assert book.functions == {"hotel.reserve", "hotel.rooms_left"}


# Names and decorators


@pytest.mark.parametrize(
    ("imports", "decorator"),
    [
        ("from apiary import function", "@function"),
        ("from apiary import function", "@function(isolation='serializable')"),
        ("from apiary import function as stored", "@stored"),
        ("import apiary", "@apiary.function"),
        ("import apiary", "@apiary.function(partition='a')"),
        ("import apiary as bees", "@bees.function"),
        ("from apiary import *", "@function"),
        ("import apiary.testing", "@apiary.function"),
        ("from apiary import function\nregistered = function", "@registered"),
    ],
)
def test_a_decorator_is_known_under_every_alias(imports: str, decorator: str) -> None:
    source = f"{imports}\n{decorator}\ndef f(db, a): return db.value('SELECT 1')\n"
    assert application(functions__hotel=source).functions.keys() == {"hotel.f"}


def test_other_decorators_of_that_name_are_not_ours() -> None:
    source = "from numba import function\n@function\ndef f(a): ...\ndef step(a): ...\n"
    found = application(functions__hotel=source, workflows__trips="@step\ndef s(): ...\n")
    assert not found.functions
    assert not found.steps
    assert found.problems == ()


def test_public_names_have_the_domain_of_the_folder() -> None:
    body = f"{HEADER}@function\ndef f(db): return db.value('SELECT a FROM room')\n"
    found = application(
        functions__hotel__search=body,
        workflows__trips__flows=f"{HEADER}@workflow\ndef w(): ...\n@step\ndef s(): ...\n",
    )
    assert found.functions["hotel.f"].reads == {"hotel.room"}
    assert found.workflows.keys() == {"trips.w"}
    assert found.steps.keys() == {"trips.s"}


def test_a_module_without_domain_is_refused() -> None:
    found = application(functions=f"{HEADER}@function\ndef f(db): ...\n", lib="x = 1\n")
    assert problems(found) == [
        "functions.py:3: @function f is in module functions, which has no domain:"
        " put it into functions/<domain>/ or workflows/<domain>/"
    ]


# Constant SQL


@pytest.mark.parametrize(
    ("expression", "before"),
    [
        ("'SELECT a FROM room'", ""),
        ("'SELECT a' ' FROM room'", ""),
        ("'SELECT a' + ' FROM ' + 'room'", ""),
        ("f'SELECT a FROM room'", ""),
        ("f'SELECT {COLUMNS} FROM {TABLE}'", "TABLE = 'room'\nCOLUMNS = 'a'"),
        ("FIND", "FIND: Final = 'SELECT a ' + REST\nREST = 'FROM room'"),
        ("queries.FIND", "from functions.hotel import queries"),
        ("FIND", "from functions.hotel.queries import FIND"),
        ("SEEK", "from .queries import FIND as SEEK"),
        ("FIND", "from functions.hotel.queries import *"),
        ("functions.hotel.queries.FIND", "import functions.hotel.queries"),
        ("q.FIND", "import functions.hotel.queries as q"),
        ("Sql.FIND", "class Sql:\n    T = 'room'\n    FIND = 'SELECT a FROM room'"),
        ("FIND", "from functions.hotel import queries\nFIND = queries.FIND"),
        ("dedent('SELECT a FROM room')", "from textwrap import dedent"),
    ],
)
def test_constant_sql(expression: str, before: str) -> None:
    source = f"{HEADER}{before}\n@function\ndef f(db):\n    return db.query({expression})\n"
    found = analyse(
        [
            Module("functions.hotel", "functions/hotel/__init__.py", source),
            Module("functions.hotel.queries", "q.py", "FIND = 'SELECT a FROM room'\n"),
        ]
    )
    assert found.problems == ()
    function = found.functions["hotel.f"]
    assert [statement.sql for statement in function.statements] == ["SELECT a FROM room"]
    assert function.read_only
    assert not function.dynamic


def test_a_local_name_bound_once_is_constant() -> None:
    found = one_function("if a:\n    sql = 'SELECT a FROM room'\n    db.query(sql)")
    assert found.functions["hotel.f"].reads == {"hotel.room"}


def test_an_integer_in_an_f_string_is_constant() -> None:
    found = one_function("return db.query(f'SELECT a FROM room LIMIT {MOST}')", "MOST = 10")
    assert found.functions["hotel.f"].statements[0].sql == "SELECT a FROM room LIMIT 10"


@pytest.mark.parametrize(
    ("body", "before", "part"),
    [
        ("db.query(a)", "", "a"),
        ("db.query('SELECT ' + a)", "", "a"),
        ("db.query(f'SELECT {a}')", "", "a"),
        ("db.query(f'SELECT {T!r}')", "T = 't'", "{T!r}"),
        ("db.query('SELECT %s' % a)", "", "'SELECT %s' % a"),
        ("db.query('SELECT {}'.format(a))", "", "'SELECT {}'.format(a)"),
        ("db.query(FIND)", "FIND = 'SELECT 1'\nFIND += ' FROM t'", "FIND"),
        ("db.query(FIND)", "FIND = 'SELECT 1'\nif x: FIND = 'SELECT 2'", "FIND"),
        ("db.query(FIND)", "FIND = 'SELECT 1'\ndef g():\n    global FIND\n    FIND = ''", "FIND"),
        ("db.query(FIND)", "def FIND(): ...", "FIND"),
        ("db.query(FIND)", "from os import FIND", "FIND"),
        ("db.query(A)", "A = B\nB = A", "A"),
        ("FIND = 'SELECT 1'\nfor FIND in a: db.query(FIND)", "", "FIND"),
        ("db.query(b'SELECT 1')", "", "b'SELECT 1'"),
    ],
)
def test_other_sql_makes_a_function_dynamic(body: str, before: str, part: str) -> None:
    function = one_function(body, before).functions["hotel.f"]
    assert function.dynamic
    assert not function.read_only
    (reason,) = function.dynamic_reasons
    assert reason.file == "hotel.py"
    assert reason.why == f"the SQL is not constant: {part} is not known before it runs"


def test_a_patched_constant_is_not_constant() -> None:
    found = application(
        functions__hotel__queries="FIND = 'SELECT 1'\n",
        functions__hotel=f"{HEADER}from functions.hotel import queries\n"
        "@function\ndef f(db): return db.value(queries.FIND)\n",
        functions__bar="from functions.hotel import queries\nqueries.FIND = 'DELETE FROM t'\n",
    )
    assert found.functions["hotel.f"].dynamic


@pytest.mark.parametrize(
    "method", ["execute", "query", "one", "first", "value", "values", "execute_many"]
)
def test_every_method_that_takes_sql_is_read(method: str) -> None:
    found = one_function(f"db.{method}('UPDATE room SET a = $1', a)")
    assert found.functions["hotel.f"].writes == {"hotel.room"}
    found = one_function(f"db.{method}(sql='UPDATE room SET a = $1')")
    assert found.functions["hotel.f"].writes == {"hotel.room"}


# Helpers and the handle


HELPER = "def _left(db, a): return db.value('SELECT n FROM room WHERE a = $1', a)\n"


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("return _left(db, a)", HELPER),
        ("return _left(a=a, db=db)", HELPER),
        ("return left(1, handle=db)", "def left(a, *, handle): return handle.value(Q)\n"
         "Q = 'SELECT n FROM room'"),
        ("return shared._left(db, a)", "from functions import shared"),
        ("return seek(db, a)", "from functions.shared import _left as seek"),
        ("return twice(db, a)", HELPER + "def twice(db, a): return _left(db, a)"),
        ("return loop(db, a)", "def loop(d, a):\n    d.value('SELECT n FROM room')\n"
         "    return loop(d, a - 1)"),
        ("other = db\nagain = other\nreturn again.value('SELECT n FROM room')", ""),
        ("def inner(): return db.value('SELECT n FROM room')\nreturn inner()", ""),
        ("def inner(d): return d.value('SELECT n FROM room')\nreturn inner(db)", ""),
        ("return [db.value('SELECT n FROM room') for _ in a]", ""),
        ("return (lambda: db.value('SELECT n FROM room'))()", ""),
        ("assert db is not None and isinstance(db, Database)\n"
         "return db.value('SELECT n FROM room', db.run_id)", ""),
    ],
)  # fmt: skip
def test_the_handle_is_followed(body: str, before: str) -> None:
    lines = body.replace("\n", "\n    ")
    source = f"{HEADER}{before}\n@function\ndef f(db: Database, a: int):\n    {lines}\n"
    found = application(functions__hotel=source, functions__shared=HELPER)
    function = found.functions["hotel.f"]
    assert function.dynamic_reasons == ()
    assert function.read_only
    assert function.reads == {"hotel.room"}
    assert len(function.statements) == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("audit(db)", "the handle is passed to audit, which cannot be followed"),
        ("a.audit(db)", "the handle is passed to a.audit, which cannot be followed"),
        ("json.dumps(x=db)", "the handle is passed to json.dumps, which cannot be followed"),
        ("Repo(db)", "the handle is passed to Repo, which cannot be followed"),
        ("helper(*a, db)", "it is not known which parameter of helper gets the handle"),
        ("helper(1, 2, db)", "it is not known which parameter of helper gets the handle"),
        ("a.db = db", "db is used as a value, and can be used from elsewhere"),
        ("a[0] = db", "db is used as a value, and can be used from elsewhere"),
        ("x = [db]", "db is used as a value, and can be used from elsewhere"),
        ("x, y = db, 1", "db is used as a value, and can be used from elsewhere"),
        ("return db", "db is used as a value, and can be used from elsewhere"),
        ("helper(**{'d': db})", "db is used as a value, and can be used from elsewhere"),
        ("run = db.execute", "db.execute is used as a value"),
        ("db.cursor()", "db.cursor is not an operation known here"),
        ("db.query(*a)", "the SQL of db.query is not its first argument"),
        ("db.query()", "the SQL of db.query is not its first argument"),
        ("import plpy\nplpy.execute('DELETE FROM t')",
         "plpy.execute reaches the database beside the handle"),
        ("eval(a)", "eval runs or reaches code that is not known here"),
        ("getattr(hotel, a)(1)", "the module functions.bar is used as a value"),
        ("wrapped(db)", "the decorator log can use the handle"),
    ],
)  # fmt: skip
def test_a_handle_out_of_sight_makes_a_function_dynamic(body: str, why: str) -> None:
    lines = body.replace("\n", "\n    ")
    source = f"""{HEADER}
import json
from functions import bar as hotel
from functions.bar import helper
class Repo: ...
def log(f): ...
@log
def wrapped(db): ...
@function
def f(db, a):
    {lines}
"""
    found = analyse(
        [
            Module("functions.hotel", "hotel.py", source),
            Module("functions.bar", "bar.py", "def helper(d, *more): ...\n"),
        ]
    )
    function = found.functions["hotel.f"]
    assert function.dynamic
    assert not function.read_only
    assert why in [reason.why for reason in function.dynamic_reasons]
    assert {reason.file for reason in function.dynamic_reasons} == {"hotel.py"}
    text = source.splitlines()
    places = {text.index("@log") + 1, *range(text.index("def f(db, a):") + 2, len(text) + 1)}
    assert {reason.line for reason in function.dynamic_reasons} <= places


def test_a_helper_reads_the_schema_of_the_function_that_uses_it() -> None:
    use = f"{HEADER}from functions.shared import _left\n@function\ndef f(db): _left(db, 1)\n"
    found = application(functions__hotel=use, functions__bar=use, functions__shared=HELPER)
    assert found.functions["hotel.f"].reads == {"hotel.room"}
    assert found.functions["bar.f"].reads == {"bar.room"}


# Functions that call functions


def test_sets_are_closed_over_calls() -> None:
    found = application(
        functions__bar=f"""
            {HEADER.strip()}
            from functions import hotel
            @function
            def a(db):
                db.query("SELECT * FROM one")
                return _helper(db)
            def _helper(db):
                return b(db)
            @function
            def b(db):
                db.query("SELECT * FROM two")
                hotel.c(1)
                a(db)
            @function
            def alone(db):
                return db.value("SELECT 1 FROM three")
            """.replace("\n            ", "\n"),
        functions__hotel=f"{HEADER}@function\ndef c(db, x): db.execute('DELETE FROM room')\n",
    )
    a, b = found.functions["bar.a"], found.functions["bar.b"]
    assert a.calls == {"bar.b"}
    assert b.calls == {"bar.a", "hotel.c"}
    assert a.reads == b.reads == {"bar.one", "bar.two"}
    assert a.writes == b.writes == {"hotel.room"}
    assert [statement.reads for statement in a.statements] == [{"bar.one"}]
    assert not a.read_only
    assert found.functions["bar.alone"].read_only


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("return list(map(write, a))", ""),
        ("return TABLE[a](1)", "TABLE = {'w': write}"),
        ("return helper()", "def helper(): return write(1)"),
        ("return Doer().do()", "class Doer:\n    def do(self): return write(1)"),
        ("return Sql.DO(a)", "class Sql:\n    DO = write"),
        ("return write.start(1)", ""),
        ("w = write\nreturn w(a)", ""),
    ],
)
def test_a_function_counts_as_called_where_it_is_mentioned(body: str, before: str) -> None:
    write = "@function\ndef write(db, a): db.execute('DELETE FROM room')\n"
    found = one_function(body, write + before)
    assert found.functions["hotel.f"].calls == {"hotel.write"}
    assert found.functions["hotel.f"].writes == {"hotel.room"}
    assert not found.functions["hotel.f"].read_only


def test_dynamic_is_inherited_with_its_reason() -> None:
    found = one_function("return g(db, a)", "@function\ndef g(db, a): return db.query(a)")
    function = found.functions["hotel.f"]
    assert function.dynamic
    assert [(reason.file, reason.line) for reason in function.dynamic_reasons] == [("hotel.py", 3)]


def test_a_step_in_a_function_makes_it_dynamic() -> None:
    found = one_function("return s(a)", "@step\ndef s(a): ...")
    (reason,) = found.functions["hotel.f"].dynamic_reasons
    assert reason.why == "the step hotel.s is used in a function, and runs outside its transaction"


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT a FROM room FOR UPDATE", {"hotel.room"}),
        ("SELECT nextval('room_id')", set()),
        ("SELECT pg_notify('c', 'x')", set()),
    ],
)
def test_locks_and_sequences_are_not_read_only(sql: str, reads: set[str]) -> None:
    function = one_function(f'db.query("{sql}")').functions["hotel.f"]
    assert not function.read_only
    assert not function.dynamic
    assert function.reads == reads
    assert not function.writes


def test_a_call_of_an_sql_function_is_dynamic() -> None:
    function = one_function("return db.value('SELECT hotel.reserve($1)', a)").functions["hotel.f"]
    assert function.dynamic
    assert "hotel.reserve(), whose effects are not known" in function.dynamic_reasons[0].why


def test_unqualified_sql_functions_are_listed_with_the_statement() -> None:
    function = one_function("return db.value('SELECT reserve($1)', a)").functions["hotel.f"]
    assert function.statements[0].functions == {"reserve"}


# Problems and their lines


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ('db.query("SELECT a FRM t x")', 5),
        ('db.query(\n    "SELECT a "\n    "FRM t x")', 7),
        ('db.query("""\nSELECT a,\n   b\nFRM t x\n""")', 8),
        ('db.query(\n    "SELECT a\\n"\n    "FROM t\\n"\n    "WHER t x")', 8),
        ('db.query("""SELECT \\\n a,\\x41\n FRM t x""")', 7),
        ('db.query(r"""SELECT\n a FRM t x""" "")', 6),
        ('db.query("SELECT a "\n  + "FROM t " +\n  "WHER t x")', 7),
        ('db.query(\n    f"SELECT {COLUMNS} "\n    f"FRM x {TABLE}")', 7),
        ('db.query(f"""\n  SELECT {COLUMNS},\n  b FRM x {TABLE} y""")', 7),
        ("db.query(BROKEN)", 2),
        ('db.query(dedent("""\n    SELECT a\n    FROM t t t\n    """))', 7),
    ],
)
def test_an_sql_error_is_reported_at_its_line(call: str, line: int) -> None:
    lines = call.replace("\n", "\n    ") if '"""' not in call else call
    source = (
        "from apiary import function; from textwrap import dedent; COLUMNS = 'a'; TABLE = 't'\n"
        "BROKEN = 'SELECT a FRM t x'\n"
        f"@function\ndef f(db):\n    {lines}\n"
    )
    (problem,) = analyse([Module("functions.hotel", "hotel.py", source)]).problems
    assert problem.message.startswith("SQL syntax error at")
    assert (problem.file, problem.line) == ("hotel.py", line)


def test_an_sql_error_of_another_module_is_reported_there() -> None:
    found = application(
        functions__hotel__queries="\n\n# queries\nFIND = '''\nSELECT a\nFRM t x'''\n",
        functions__hotel=f"{HEADER}from functions.hotel.queries import FIND\n"
        "@function\ndef f(db): return db.query(FIND)\n@function\ndef g(db): db.query(FIND)\n",
    )
    assert [(each.file, each.line) for each in found.problems] == [
        ("functions/hotel/queries.py", 4)
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("COMMIT", "COMMIT is refused: a function is one transaction"),
        ("CREATE TABLE t (a int)", "functions/<domain>/sql/"),
        ("SET x = 1", "SET is refused"),
        ("SELECT 1; SELECT 2", "more than one SQL statement"),
        ("SELECT $1, $3", "uses $3 but not $2"),
        ("SELECT $0", "$0 is not a parameter"),
    ],
)
def test_refused_sql_is_a_problem(sql: str, message: str) -> None:
    (problem,) = one_function(f"db.execute('{sql}')").problems
    assert message in problem.message
    assert (problem.file, problem.line) == ("hotel.py", 5)


def test_duplicate_public_names() -> None:
    found = application(
        functions__hotel=f"{HEADER}@function\ndef f(db): ...\n@function\ndef f(db, a): ...\n",
        functions__hotel__more=f"{HEADER}@function\ndef f(db): ...\n",
        workflows__hotel=f"{HEADER}@workflow\ndef f(): ...\n",
    )
    message = "hotel.f is already the function at functions/hotel.py:3: public names are unique"
    assert problems(found) == [
        f"functions/hotel.py:5: {message}",
        f"functions/hotel/more.py:3: {message}",
        f"workflows/hotel.py:3: {message}",
    ]


@pytest.mark.parametrize(
    ("signature", "found"),
    [
        ("", "it has no positional parameter"),
        ("*args", "it has no positional parameter"),
        ("*, db", "it has no positional parameter"),
        ("a: int", "its first parameter is a: int"),
    ],
)
def test_a_function_without_handle(signature: str, found: str) -> None:
    source = f"{HEADER}@function\ndef f({signature}): ...\n"
    assert problems(application(functions__hotel=source)) == [
        "functions/hotel.py:3: @function f must take the database handle first"
        f" (db: Database); {found}"
    ]


@pytest.mark.parametrize(
    "source",
    [
        "if x:\n    @function\n    def f(db): ...",
        "class A:\n    @function\n    def f(db): ...",
        "def g():\n    @function\n    def f(db): ...",
        "try:\n    @apiary.function()\n    def f(db): ...\nfinally: ...",
        "def g():\n    from apiary import function as fn\n    @fn\n    def f(db): ...",
    ],
)
def test_nested_and_conditional_functions_are_refused(source: str) -> None:
    found = application(functions__hotel=f"{HEADER}import apiary\n{source}\n")
    (problem,) = found.problems
    assert "f is nested or conditional: move it to the top level" in problem.message
    assert not found.functions


def test_a_decorator_that_is_called_is_refused() -> None:
    found = application(functions__hotel=f"{HEADER}def g(db): ...\nf = function(g)\n")
    assert problems(found) == [
        "functions/hotel.py:3: function() is called: write it as a decorator, @function, above a"
        " def"
    ]


def test_a_module_that_is_not_python() -> None:
    with pytest.raises(DeployError) as caught:
        application(functions__hotel="x = 1\ndef f(:\n")
    assert (caught.value.file, caught.value.line) == ("functions/hotel.py", 2)
    with pytest.raises(DeployError, match="null bytes"):
        application(functions__hotel="x = '\0'\n")


# The tools


def test_importing_the_analysis_does_not_import_sqlglot() -> None:
    code = "import sys, apiary.authoring.analysis; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_that_go_in_circles_end() -> None:
    found = application(
        functions__hotel=f"{HEADER}from functions.bar import *\nfrom functions.bar import A\n"
        "@function\ndef f(db):\n    db.query(A)\n    return missing(db)\n",
        functions__bar="from functions.hotel import *\nfrom functions.hotel import A\n",
    )
    assert found.functions["hotel.f"].dynamic
