"""The servers that other tests rely on do start, answer and stop."""

import asyncio

import nats
import psycopg
import pytest

from pluribus.cli import programs
from tests import servers


def test_nats_server_carries_a_message(nats_server):
    async def exchange():
        client = await nats.connect(nats_server)
        subscription = await client.subscribe("greeting")
        await client.publish("greeting", b"hello")
        message = await subscription.next_msg(timeout=10)
        await client.close()
        return message.data

    assert asyncio.run(exchange()) == b"hello"


def test_postgres_server_takes_two_phase_commits(postgres_server):
    with psycopg.connect(postgres_server) as connection:
        connection.tpc_begin("fixture-check")
        connection.execute("CREATE TABLE fixture_check (n int)")
        connection.tpc_prepare()
        connection.tpc_commit()
        assert connection.execute("SELECT count(*) FROM fixture_check").fetchall() == [(0,)]
        connection.execute("DROP TABLE fixture_check")


def test_a_stopped_server_answers_no_more():
    folder = programs.find_postgres_folder()
    if folder is None:
        pytest.skip(f"The PostgreSQL server is missing. {programs.REMEDIES['postgres']}")
    with servers.running_postgres(folder) as dsn:
        psycopg.connect(dsn).close()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn, connect_timeout=2)


def test_a_server_that_ends_at_once_is_reported_with_its_words(tmp_path):
    grumpy = tmp_path / "nats-server"
    grumpy.write_text("#!/bin/sh\necho no licence\nexit 3\n")
    grumpy.chmod(0o755)
    with pytest.raises(servers.ServerFailed, match=r"exit code 3\): no licence"), servers.running_nats(grumpy):
        pass
