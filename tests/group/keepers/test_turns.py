"""Machines take turns by bytes."""

from pluribus.group.keepers.turns import ROW_BYTES, Turns


def test_each_machine_has_one_row_a_turn_and_order_is_kept_within():
    turns = Turns()
    for number in range(3):
        turns.add(1, [b"a%d" % number], 10, print)
    turns.add(2, [b"b"], 10, print)
    rows = turns.next()
    assert [(machine, [commands for commands, _ in taken]) for machine, taken in rows] == [
        (1, [[b"a0"], [b"a1"], [b"a2"]]),
        (2, [[b"b"]]),
    ]
    assert not turns and turns.next() == []


def test_a_machine_with_much_to_write_pays_for_it_and_nobody_else_waits():
    turns = Turns()
    for _ in range(4):
        turns.add(1, [b"long"], 4 * ROW_BYTES, print)
    written = {1: 0, 2: 0}
    for _ in range(13):
        turns.add(2, [b"short"], ROW_BYTES // 2, print)
        rows = turns.next()
        assert 2 in [machine for machine, _ in rows], "the short one is in every write"
        for machine, taken in rows:
            written[machine] += len(taken)
    assert written[2] == 13 and written[1] == 4, "the long one has its share all the same"


def test_the_only_one_never_waits():
    turns = Turns()
    for _ in range(5):
        turns.add(1, [b"long"], 100 * ROW_BYTES, print)
    assert [len(turns.next()) for _ in range(5)] == [1] * 5 and not turns


def test_what_waits_is_told_when_all_is_given_up():
    turns = Turns()
    turns.add(1, [b""], 1, print)
    turns.add(2, [b""], 1, repr)
    assert turns.clear() == [print, repr] and not turns
