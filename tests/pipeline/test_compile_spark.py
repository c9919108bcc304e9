"""Archives of sources are given compiled modules, which Python imports in the place of the sources."""

import importlib.util
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "compile_spark.py"


@pytest.fixture
def script():
    return runpy.run_path(str(SCRIPT))


def imported(archive, name, shows):
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import {name}; print({name}.{shows})"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_modules_of_an_archive_are_imported_compiled_and_have_the_same_names(script, tmp_path):
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("room/__init__.py", "from .door import key\n")
        made.writestr("room/door.py", "key = 'is it' is 'odd'\nkey = 7\n")
        made.writestr("room/tests/test_door.py", "this is no Python")
        made.writestr("room/data.txt", "data")
    assert script["add_compiled"](archive) == 2
    with zipfile.ZipFile(archive) as made:
        assert sorted(made.namelist()) == [
            *("room/__init__.py", "room/__init__.pyc", "room/data.txt", "room/door.py", "room/door.pyc"),
            "room/tests/test_door.py",
        ]
    assert imported(archive, "room", "key") == "7"
    assert imported(archive, "room", "__loader__.get_filename('room')") == f"{archive}/room/__init__.pyc"
    assert script["add_compiled"](archive) == 0, "they are there"
    assert [file.name for file in tmp_path.iterdir()] == ["lib.zip"]


def test_an_archive_that_is_compiled_for_another_python_is_imported_from_its_sources(script, tmp_path, monkeypatch):
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("door.py", "key = 7\n")
    monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"\0\0\r\n")
    assert script["add_compiled"](archive) == 1
    assert imported(archive, "door", "key") == "7"


def test_sets_up_the_archives_of_pyspark(script):
    pytest.importorskip("pyspark.sql")
    archives = script["archives"]()
    assert [archive.name.partition("-")[0] for archive in archives] == ["py4j", "pyspark.zip"]
    with zipfile.ZipFile(archives[-1]) as made:
        assert "pyspark/worker.py" in made.namelist()
