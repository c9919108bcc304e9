"""Every row of the table of crashes in ``docs/queues.md`` is shown by something: tests, or promises that the scenario
``queues`` checks under every fault."""

import re

import pytest

from pluribus.sim.scenarios import scenario
from tests.features import ROOT

CRASHES = "tests/runtime/styles/queues/test_crashes.py::"
USED = "tests/runtime/styles/queues/test_queues.py::"
KILLED = "tests/real/test_queues.py::"
SHOWN = {
    "the sender, before `send` returned": [
        CRASHES + "test_what_is_sent_again_with_its_id_is_there_once_whoever_sends_it",
        KILLED + "test_producers_and_consumers_are_killed",
        "queues:nothing_invented",
    ],
    "the sender, after `send` returned": [
        KILLED + "test_producers_and_consumers_are_killed",
        KILLED + "test_of_three_keepers_one_after_another_and_all_are_killed",
        "queues:nothing_lost",
    ],
    "the sender, with `send_soon` and no `flush`, or `durable=False`": [
        CRASHES + "test_of_what_a_sender_did_not_flush_a_beginning_is_there_in_order",
    ],
    "a consumer, before it settled": [
        CRASHES + "test_what_a_member_held_is_handed_out_when_it_has_left_the_view",
        CRASHES + "test_what_a_client_held_goes_back_after_its_lease_when_its_member_crashes",
        KILLED + "test_producers_and_consumers_are_killed",
        "queues:nothing_lost",
    ],
    "a consumer, while it settles": [
        KILLED + "test_producers_and_consumers_are_killed",
        KILLED + "test_of_three_keepers_one_after_another_and_all_are_killed",
        "queues:settled_once",
    ],
    "a consumer that is only slow, or cut off": [
        USED + "test_a_lease_that_ended_is_said",
        USED + "test_messages_that_an_iterator_settled_too_late_are_counted",
        "queues:one_holder",
    ],
    "a consumer, after `ack` returned": [
        KILLED + "test_producers_and_consumers_are_killed",
        "queues:settled_once",
    ],
    "one keeper, or any minority of voters": [
        CRASHES + "test_a_client_of_a_member_that_crashes_goes_on_with_another_and_settles_there",
        KILLED + "test_of_three_keepers_one_after_another_and_all_are_killed",
        "queues:nothing_lost",
    ],
    "most voters, or all": [
        KILLED + "test_a_keeper_is_killed_and_started_again",
        KILLED + "test_of_three_keepers_one_after_another_and_all_are_killed",
        "queues:nothing_lost",
    ],
    "a disk that tears, flips or loses data": [
        CRASHES + "test_a_message_whose_only_body_is_damaged_becomes_a_dead_letter",
        "tests/group/keepers/test_keeper.py::test_a_damaged_row_is_noticed_at_the_start_and_put_back_and_meanwhile_"
        "there_is_no_vote",
        "tests/group/keepers/test_keeper.py::test_a_keeper_alone_lives_with_old_damage_and_stops_at_new",
        "queues:same_states",
    ],
    "a disk that is full": [
        CRASHES + "test_while_a_disk_is_full_a_sender_waits_and_nothing_is_lost_or_there_twice",
        "tests/group/keepers/test_disks.py::test_a_full_disk_loses_nothing_and_is_used_again_when_there_is_room",
    ],
    "a client that receives from a queue in memory": [
        CRASHES + "test_what_a_client_held_of_a_queue_in_memory_goes_back_when_its_member_has_left_the_view",
        CRASHES + "test_what_a_client_held_of_a_queue_in_memory_with_a_lease_goes_back_while_its_member_is_there",
        USED + "test_a_client_s_messages_of_a_queue_in_memory_stay_with_it",
    ],
    "all members with a queue in memory (`durable=False`)": [
        CRASHES + "test_a_queue_in_memory_is_gone_with_its_last_member",
        CRASHES + "test_what_is_in_memory_stays_while_one_member_lives_and_comes_back_from_one_that_leaves",
        "group-hosts:kept",
    ],
}


def rows():
    """The first column of the table."""
    page = (ROOT / "docs/queues.md").read_text("utf-8").split("\n| who crashes, or is cut off |")[1].split("\n\n")[0]
    return [line.split("|")[1].strip() for line in page.splitlines()[2:]]


def test_every_row_is_shown():
    assert rows() == list(SHOWN)


@pytest.mark.parametrize("shown", sorted({one for some in SHOWN.values() for one in some}))
def test_what_shows_a_row_is_there(shown):
    if "::" in shown:
        file, name = shown.split("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)
    else:
        name, checker = shown.split(":")
        assert checker in scenario(name).checkers
