"""The bench of durable logs: small, but every part of it."""

import pytest

from pluribus.bench import log
from pluribus.bench.peers.kept import KEPT, kept_names, sqlite
from pluribus.bench.peers.kept import program as program_of
from pluribus.core.errors import BadInput, Unavailable


def test_a_long_log_is_compared_with_a_short_one():
    rows, goals = log._long(5_000, 1, 0.05, lambda text: None)
    named = {row.case: row.value for row in rows}
    assert named["log of 5,000 events: open"] > 0 and named["log of 1,000 events: append"] > 0
    assert [goal.goal.split()[0] for goal in goals] == ["a", "appending", "reading"]


def test_ours_and_a_table_are_measured_alike():
    rates = {}
    log._theirs("sqlite", 100, 0.05, rates, {})
    rates[(log.OWN, 100)] = [2 * rates[("sqlite", 100)][0]]
    (goal,) = log._goals(rates)
    assert goal.met and goal.measured == pytest.approx(2.0)
    assert sqlite(100, 10, 0.05) > 0


def test_everybody_has_a_turn_beside_what_it_is_compared_with():
    turns = log._turns(list(KEPT))
    assert sorted(turns) == sorted([log.OWN, log.CLIENT, log.THREE, *KEPT])
    assert turns.index("sqlite") == turns.index(log.OWN) + 1
    assert log._turns([]) == [log.OWN, log.CLIENT, log.THREE]


def test_a_peer_that_is_not_there_is_said_and_left_out(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    rates, missing = {}, {}
    monkeypatch.setitem(KEPT, "rabbitmq", lambda *asked: program_of("no-such-server"))
    log._theirs("rabbitmq", 100, 0.05, rates, missing)
    assert rates == {} and "is not installed" in missing["rabbitmq"]
    with pytest.raises(Unavailable):
        program_of("no-such-server")


@pytest.mark.parametrize("rival", KEPT)
def test_what_is_under_way_is_acknowledged_by_every_peer(rival):
    try:
        assert KEPT[rival](100, 10, 0.05) > 0
    except Unavailable as error:
        pytest.skip(str(error))


def test_names_of_peers():
    assert kept_names("") == [] and kept_names("all") == list(KEPT)
    assert kept_names("redis,sqlite") == ["redis", "sqlite"]
    with pytest.raises(BadInput, match="there is no peer 'kafka'"):
        kept_names("kafka")
