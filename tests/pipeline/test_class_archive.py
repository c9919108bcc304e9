"""The archive of Java's classes: used where it is, and nothing is said or broken where it is not, or does not fit."""

import subprocess
import sys

import pytest

from pluribus.pipeline import class_archive


@pytest.fixture
def file(monkeypatch, tmp_path):
    found = tmp_path / "share" / "spark.jsa"
    monkeypatch.setattr(class_archive, "archive", lambda: found)
    return found


def test_java_is_told_of_the_file_if_it_is_there(file, monkeypatch, tmp_path):
    assert class_archive.java_options() == ""
    file.parent.mkdir()
    file.touch()
    assert class_archive.java_options().startswith(f"-XX:SharedArchiveFile={file} -Xshare:auto ")
    spaced = tmp_path / "a folder"
    spaced.touch()
    monkeypatch.setattr(class_archive, "archive", lambda: spaced)
    assert class_archive.java_options() == "", "Spark would take it for two options"


def test_a_rehearsal_that_fails_leaves_nothing(file, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert not class_archive.make() and not list(file.parent.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_java_does_without_a_file_that_does_not_fit(java, tmp_path):
    other = tmp_path / "other.jsa"
    other.write_bytes(b"not an archive of classes" * 1_000)
    options = f"-XX:SharedArchiveFile={other} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
    answer = subprocess.run(["java", *options.split(), "-version"], capture_output=True, text=True, timeout=100)
    assert answer.returncode == 0 and answer.stdout == "" and "ersion" in answer.stderr
