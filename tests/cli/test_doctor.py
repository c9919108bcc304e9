"""`pluribus doctor` must tell the truth both ways: what is there, and what is not."""

import json
import socket
import subprocess
import sys

import pytest

from pluribus.cli import app, probes, programs


def doctor(environment=None):
    return subprocess.run(
        [sys.executable, "-m", "pluribus", "doctor", "--json"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )


def by_name(findings):
    return {finding["name"]: finding for finding in findings}


def test_json_names_everything_and_says_that_this_machine_is_usable():
    answer = doctor()
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert document["usable"] is True
    findings = by_name(document["findings"])
    assert len(findings) == len(probes.PROBES)
    assert {name for name, finding in findings.items() if finding["essential"]} == {"Python", "msgspec", "loopback UDP"}
    for finding in findings.values():
        assert finding["detail"]
        assert bool(finding["remedy"]) is not finding["ok"]


def test_with_an_empty_path_programs_are_missing_and_remedies_are_given(tmp_path):
    # No JAVA_HOME, no PATH, no home; the folders of the distribution are searched all the same.
    document = json.loads(doctor({"PATH": str(tmp_path), "HOME": str(tmp_path)}).stdout)
    findings = by_name(document["findings"])
    assert document["usable"] is True
    assert not findings["Java"]["ok"]
    assert "openjdk-17" in findings["Java"]["remedy"]
    assert not findings["browser"]["ok"]
    assert "chromium" in findings["browser"]["remedy"]
    assert not findings["network namespaces"]["ok"]  # `unshare` is found by the PATH alone


@pytest.fixture
def bare_machine(monkeypatch, tmp_path):
    """A machine without any optional program: nothing on the PATH, nothing where distributions put things."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for folders in ("SERVER_FOLDERS", "POSTGRES_FOLDERS"):
        monkeypatch.setattr(programs, folders, ())
    return tmp_path


def program(folder, name, words, exit_code=0):
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{words}'\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("probe", "remedy"),
    [
        (probes.probe_java, "openjdk-17"),
        (probes.probe_postgres, "apt-get install postgresql"),
        (probes.probe_nats, "apt-get install nats-server"),
        (probes.probe_browser, "apt-get install chromium"),
        (probes.probe_namespaces, "iproute2"),
    ],
)
def test_each_program_missing_has_a_remedy(bare_machine, probe, remedy):
    finding = probe()
    assert not finding.ok
    assert remedy in finding.remedy
    assert not finding.essential


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ('openjdk version "17.0.2" 2022-01-18', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', None),
    ],
)
def test_only_a_java_that_is_new_enough_counts(bare_machine, words, version):
    java = program(bare_machine, "java", words)
    assert programs.find_java() == ((java, version) if version else None)


def test_java_home_comes_before_the_path(bare_machine, monkeypatch):
    program(bare_machine, "java", 'openjdk version "17.0.2"')
    (bare_machine / "home" / "bin").mkdir(parents=True)
    preferred = program(bare_machine / "home" / "bin", "java", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "home"))
    assert programs.find_java() == (preferred, 21)


def test_a_server_that_does_not_run_is_not_there(bare_machine):
    program(bare_machine, "nats-server", "cannot execute", exit_code=126)
    assert not probes.probe_nats().ok
    program(bare_machine, "initdb", "")
    program(bare_machine, "postgres", "wrong architecture", exit_code=1)
    assert not probes.probe_postgres().ok


def test_a_server_that_runs_is_there(bare_machine):
    program(bare_machine, "nats-server", "nats-server: v2.9.10")
    program(bare_machine, "initdb", "")
    program(bare_machine, "postgres", "postgres (PostgreSQL) 15.1")
    assert "v2.9.10" in probes.probe_nats().detail
    assert str(bare_machine) in probes.probe_postgres().detail


class BrokenSocket(socket.socket):
    def sendto(self, *arguments):
        raise OSError(101, "Network is unreachable")

    def setsockopt(self, level, option, value):
        raise OSError(92, "Protocol not available")


def test_without_a_network_doctor_says_so_and_exits_with_1(monkeypatch, capsys):
    monkeypatch.setattr(probes.socket, "socket", BrokenSocket)
    assert not probes.probe_multicast().ok
    assert not probes.probe_segmentation().ok
    assert not probes.probe_socket_buffer().ok
    assert app.run(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "unreachable" in output
    assert "cannot run here" in output


def test_a_small_socket_buffer_is_reported(monkeypatch):
    monkeypatch.setattr(probes, "SOCKET_BUFFER_ENOUGH_BYTES", 1 << 40)
    finding = probes.probe_socket_buffer()
    assert not finding.ok
    assert "rmem_max" in finding.remedy


def test_missing_packages_are_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "msgspec", None)  # makes `import msgspec` fail
    assert probes.probe_msgspec().essential
    assert not probes.probe_msgspec().ok
    monkeypatch.setitem(probes.EXTRAS, "spark", "no_such_module_of_ours")
    assert probes.probe_extras().detail == "not installed: spark"


@pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast, the default of the bus, is promised on Linux.")
def test_loopback_multicast_works_here():
    assert probes.probe_multicast().ok


def test_the_table_for_people_shows_every_finding(capsys):
    assert app.run(["doctor"]) == 0
    output = capsys.readouterr().out
    for name in ("Python", "loopback multicast", "UDP segmentation", "Java", "PostgreSQL", "NATS", "browser"):
        assert name in output


@pytest.mark.parametrize("reason", ["", "it was not compiled"])
def test_whether_the_compiled_parts_are_in_use_is_told(monkeypatch, reason):
    from pluribus._speed import quick

    monkeypatch.setattr(quick, "COMPILED", not reason)
    monkeypatch.setattr(quick, "REASON", reason)
    found = probes.probe_compiled()
    assert (
        found.ok is not bool(reason)
        and found.detail.startswith(reason or "in use")
        and bool(found.remedy) is bool(reason)
    )
