"""What a deploy imports, and the sources that a deployment gives to programs of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apiary.authoring.application import Application
from apiary.authoring.bundle import build_bundle
from apiary.authoring.context import running_in
from apiary.authoring.loader import DeploymentCode, SourceModule
from apiary.authoring.primitives import write_sources
from apiary.errors import DeployError, UsageError
from apiary.execution.steps import StepContext

REPOSITORY = Path(__file__).resolve().parents[3]

FLOWS = """
from apiary import step, workflow

from .units import SECOND

@step
def compute(n: int) -> int:
    from .model import double
    return double(n)

@workflow
def twice(n: int) -> int:
    return compute(n) * SECOND
"""
MODEL = """
import no_such_package

def double(n: int) -> int:
    return 2 * n
"""


def application(folder: Path, **modules: str) -> Application:
    package = folder / "workflows" / "calc"
    package.mkdir(parents=True)
    (folder / "apiary.toml").write_text('name = "calc"')
    for name, source in {"__init__": "", "units": "SECOND = 1", **modules}.items():
        (package / f"{name}.py").write_text(source)
    return Application.read(folder)


def test_only_modules_that_register_something_are_imported(tmp_path: Path) -> None:
    bundle = build_bundle(application(tmp_path, flows=FLOWS, model=MODEL))
    assert [row["name"] for row in bundle.workflows] == ["calc.compute", "calc.twice"]
    # The model is stored all the same: executors import it when the step runs.
    assert "workflows.calc.model" in [module.name for module in bundle.modules]


def test_what_a_registering_module_imports_must_be_there(tmp_path: Path) -> None:
    flows = "from .model import double\n" + FLOWS
    with pytest.raises(DeployError, match="no_such_package") as failure:
        build_bundle(application(tmp_path, flows=flows, model=MODEL))
    assert "step's body" in str(failure.value.hint)


_WITHOUT_HEAVY_PACKAGES = """
import sys
from pathlib import Path
for name in ("numpy", "scipy", "torch", "matplotlib", "ortools", "highspy", "networkx", "numba"):
    sys.modules[name] = None
from apiary.authoring.application import Application
from apiary.authoring.bundle import build_bundle
bundle = build_bundle(Application.read(Path(sys.argv[1])))
print(*(row["name"] for row in bundle.workflows))
"""


def test_this_repository_deploys_without_the_packages_that_only_steps_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_HEAVY_PACKAGES, str(REPOSITORY)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "symi.train" in done.stdout.split()


def code(source: str) -> DeploymentCode:
    return DeploymentCode(
        "d1",
        [
            SourceModule(
                name="workflows.calc", file="workflows/calc/__init__.py", source="", is_package=True
            ),
            SourceModule(
                name="workflows.calc.program",
                file="workflows/calc/program.py",
                source=source,
                is_package=False,
            ),
        ],
    )


def step_context(deployed: DeploymentCode) -> StepContext:
    return StepContext(
        run_id="r",
        seq=1,
        report=lambda progress: None,
        invoke=lambda name, text: {"output": None, "error": None},
        code=deployed,
    )


def test_a_step_s_program_imports_what_was_deployed(tmp_path: Path) -> None:
    deployed = code("print(__name__, 'größer')\n")
    try:
        with running_in(step_context(deployed)):
            write_sources(tmp_path)
            write_sources(str(tmp_path))  # again, into the same place
    finally:
        deployed.unload()
    done = subprocess.run(
        [sys.executable, "-m", "workflows.calc.program"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "__main__ größer\n"
    assert not [path for path in tmp_path.rglob("*") if ".py." in path.name]


def test_sources_are_for_steps() -> None:
    with pytest.raises(UsageError, match="outside the platform"):
        write_sources("anywhere")
