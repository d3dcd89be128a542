"""What the repository promises as such: the wheel is whole, the lock is safe, setting up needs no more than it says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def committed() -> list[Path]:
    """The files that git tracks, or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel as pip would install it."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_module_template_and_static_file(wheel: set[str]) -> None:
    ours = [path.relative_to(ROOT).as_posix() for path in committed()]
    package = {name for name in ours if name.startswith("amqpjobs/")}
    templates = {"amqpjobs/web/" + name for name in ours if name.startswith("templates/")}
    assert any(name.endswith(".html") for name in templates)
    assert any("/static/" in name for name in package)
    assert package | templates <= wheel


def test_the_wheel_has_nothing_that_is_not_the_product(wheel: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {"amqpjobs"}
    assert not [name for name in wheel if name.endswith(".pyc")]


def test_the_wheel_has_the_licence_and_the_program(wheel: set[str]) -> None:
    assert any(name.endswith("/LICENSE") for name in wheel)
    assert any(name.endswith("/entry_points.txt") for name in wheel)


def test_no_committed_file_names_the_host_of_a_package_registry() -> None:
    # Put together here, so that this file does not name them either.
    hosts = [b".".join(parts) for parts in ((b"pypi", b"org"), (b"pythonhosted", b"org"), (b"npmjs", b"org"))]
    hosts += [b".".join(parts) for parts in ((b"npmjs", b"com"), (b"deb", b"debian", b"org"), (b"yarnpkg", b"com"))]
    naming = [path.relative_to(ROOT) for path in committed() if any(host in path.read_bytes() for host in hosts)]
    assert naming == []


def locked(lock: str = "requirements.lock") -> dict[str, list[str]]:
    """Each requirement of the lock with its hashes."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    lines = [line for line in joined.splitlines() if line.strip()]
    return {line.split("==")[0].split()[0].lower(): re.findall(r"--hash=sha256:[0-9a-f]{64}", line) for line in lines}


def test_everything_in_the_lock_has_a_version_and_hashes() -> None:
    requirements = locked()
    assert len(requirements) > 30
    assert [name for name, hashes in requirements.items() if not hashes] == []


def test_the_lock_covers_the_project_its_tools_and_its_build_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
        *project["build-system"]["requires"],
        "editables",
    ]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in wanted}
    assert names - set(locked()) == set()


def test_the_pipelines_lock_fits_the_other_one() -> None:
    pipeline, ours = locked("requirements-pipeline.lock"), locked()
    assert {"pyspark", "pandas", "pyarrow", "deltalake", "duckdb"} <= set(pipeline)
    assert [name for name, hashes in pipeline.items() if not hashes] == []
    both = set(pipeline) & set(ours)
    assert len(both) > 10
    assert {name: pipeline[name] for name in both} == {name: ours[name] for name in both}, "hashes tell versions"


BIG = "pyspark py4j pandas numpy pyarrow deltalake duckdb"


@pytest.mark.parametrize(
    "module",
    ["amqpjobs", "amqpjobs.cli", "amqpjobs.web.app", "amqpjobs.worker.command", "amqpjobs.scheduler.app"],
)
def test_only_the_pipeline_loads_spark(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {BIG!r}.split() if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == ""


def test_foreign_code_imports_nothing_of_ours() -> None:
    foreign = [ROOT / "workers/foreign_producer.py", *(ROOT / "workers/python").glob("*.py")]
    assert len(foreign) > 2
    for path in foreign:
        imported = re.findall(r"^\s*(?:from|import)\s+([A-Za-z0-9_]+)", path.read_text("utf-8"), flags=re.MULTILINE)
        assert set(imported) - sys.stdlib_module_names <= {"pika", "workers"}
        assert not re.search(r"workers\.(?!python\b)", path.read_text("utf-8"))


def test_the_checklist_of_a_worker_is_what_its_shared_test_runs() -> None:
    protocol = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    tests = (ROOT / "tests/broker/test_languages.py").read_text(encoding="utf-8")
    listed = re.findall(r"^\|.*`(test_\w+)` \|$", protocol, flags=re.MULTILINE)
    assert listed == re.findall(r"^async def (test_\w+)", tests, flags=re.MULTILINE)


@pytest.mark.parametrize("script", ["scripts/setup", ".ci/run"])
def test_scripts_can_be_run_and_parse(script: str) -> None:
    assert (ROOT / script).stat().st_mode & 0o111
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_help_loads_no_broker_driver() -> None:
    code = (
        "import sys, contextlib, amqpjobs.cli\n"
        "with contextlib.suppress(SystemExit): amqpjobs.cli.main(['--help'])\n"
        "loaded = {'aio_pika', 'aiormq', 'fastapi', 'uvicorn', 'pydantic'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
