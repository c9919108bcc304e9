"""The archive of Java's classes: used where it fits, made again where it does not, and never at anybody's cost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pluribus.cli import probes
from pluribus.pipeline import class_archive


@pytest.fixture
def room(monkeypatch, tmp_path):
    """An environment, a Java and a Spark of three jars."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("a", "b", "c"):
        (jars / f"{name}.jar").write_text(name)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.delenv(class_archive.OPTIONS, raising=False)
    return tmp_path


def rehearsing(monkeypatch, text="classes"):
    """In the place of a small backbone, which takes half a minute."""

    def rehearsed(made):
        made.write_text(text)
        return ""

    monkeypatch.setattr(class_archive, "_rehearsed", rehearsed)


def test_the_file_is_used_as_long_as_java_and_jars_are_those_that_it_was_made_with(room, monkeypatch):
    assert class_archive.java_options() == "" and not class_archive.fits()
    rehearsing(monkeypatch)
    assert class_archive.make() == ""
    assert class_archive.java_options().startswith(f"-XX:SharedArchiveFile={class_archive.archive()} -Xshare:auto ")
    assert sorted(one.name for one in class_archive.archive().parent.iterdir()) == ["spark.jsa", "spark.stamp"]
    (room / "spark" / "jars" / "d.jar").write_text("d")
    assert class_archive.java_options() == "", "another jar"
    rehearsing(monkeypatch, "classes with d")
    assert class_archive.make() == "" and class_archive.archive().read_text() == "classes with d"
    os.utime(room / "java" / "bin" / "java", (1, 1))
    assert class_archive.java_options() == "", "another Java"
    assert class_archive.make() == "" and class_archive.fits()
    rehearsing(monkeypatch, "never")
    assert class_archive.make() == "" and class_archive.archive().read_text() == "classes with d", "it is there"
    monkeypatch.setenv("JAVA_HOME", str(room / "nowhere"))
    assert class_archive.java_options() == "" and class_archive.make() == "PySpark or Java is missing"


def test_options_that_somebody_set_stay(room, monkeypatch):
    """They come behind ours, so Java takes theirs where both say something; and nothing is left behind."""
    rehearsing(monkeypatch)
    class_archive.make()
    with class_archive.in_use():
        assert os.environ[class_archive.OPTIONS] == class_archive.java_options()
    assert class_archive.OPTIONS not in os.environ
    monkeypatch.setenv(class_archive.OPTIONS, "-Dtheirs=1")
    with class_archive.in_use():
        assert os.environ[class_archive.OPTIONS] == f"{class_archive.java_options()} -Dtheirs=1"
    assert os.environ[class_archive.OPTIONS] == "-Dtheirs=1"


def test_a_folder_that_java_would_take_for_two_options_is_not_named(room, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(room / "a venv"))
    rehearsing(monkeypatch)
    assert class_archive.make() == "" and class_archive.fits() and class_archive.java_options() == ""


@pytest.mark.parametrize("broken", ["ends", "hangs", "no room"])
def test_a_rehearsal_that_fails_says_why_and_leaves_what_was_there(room, monkeypatch, broken):
    rehearsing(monkeypatch)
    class_archive.make()
    monkeypatch.undo()
    monkeypatch.setenv("JAVA_HOME", str(room / "java"))
    monkeypatch.setenv("SPARK_HOME", str(room / "spark"))
    monkeypatch.setattr(sys, "prefix", str(room / "venv"))
    (room / "spark" / "jars" / "d.jar").write_text("d")
    python = room / "python"
    python.write_text(
        "#!/bin/sh\necho some words >&2\necho a reason >&2\n" + ("sleep 100\n" if broken == "hangs" else "")
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python if broken != "no room" else room / "no such python"))
    if broken == "hangs":
        monkeypatch.setattr(class_archive, "REHEARSAL_S", 0.2)
    reason = class_archive.make()
    wanted = {"ends": "a reason", "hangs": "it was not done after 0.2 s", "no room": "No such file"}
    assert wanted[broken] in reason
    assert sorted(one.name for one in class_archive.archive().parent.iterdir()) == ["spark.jsa", "spark.stamp"]
    assert not class_archive.fits()


def test_the_doctor_says_whether_they_are_in_use(room, monkeypatch):
    assert probes.probe_class_archive().detail == "not prepared"
    rehearsing(monkeypatch)
    class_archive.make()
    assert probes.probe_class_archive().ok
    (room / "spark" / "jars" / "a.jar").unlink()
    found = probes.probe_class_archive()
    assert not found.ok and found.detail == "prepared for another Java or PySpark"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_java_has_the_options_of_the_configuration_and_the_file_beside_them(spark):
    """Before, the option for the file took the place of all that a spark-defaults.conf says of Java."""
    runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    given = list(runtime.getInputArguments())
    conf = Path(__file__).with_name("spark-defaults.conf").read_text()
    (line,) = (line for line in conf.splitlines() if line.startswith("spark.driver.extraJavaOptions"))
    assert set(line.split()[1:]) <= set(given)
    told = [one for one in given if one.startswith("-XX:SharedArchiveFile=")]
    assert told == ([f"-XX:SharedArchiveFile={class_archive.archive()}"] if class_archive.fits() else [])
    maps = Path("/proc", str(runtime.getPid()), "maps")
    if class_archive.fits() and maps.exists():
        assert str(class_archive.archive()) in maps.read_text(), "Java was told of the file, and does without it"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_java_does_without_a_file_that_does_not_fit(java, tmp_path):
    other = tmp_path / "other.jsa"
    other.write_bytes(b"not an archive of classes" * 1_000)
    options = f"-XX:SharedArchiveFile={other} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
    answer = subprocess.run(["java", *options.split(), "-version"], capture_output=True, text=True, timeout=100)
    assert answer.returncode == 0 and answer.stdout == "" and "ersion" in answer.stderr
