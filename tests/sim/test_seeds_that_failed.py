"""Seeds in which a promise was once broken, each by a mistake that is mended."""

import pytest

from pluribus.sim.machinery.campaign import play_seed

ONCE = [
    ("durable-replica", 11_000_052, "the only row of a log went bad before anybody but its founder had it"),
    (
        "durable-replica",
        60_000_177,
        "the only row of a log went bad while its founder led, and others had none",
    ),
    ("spaces", 62_000_142, "two keepers began a log at once, and the one that nobody elected stayed with its own"),
    ("durable-replica", 9_400_005, "a keeper whose identity had gone bad was given no new disk, and stayed a voter"),
    ("queues", 20_000_210, "a late copy of a command to pause paused a queue that had been resumed meanwhile"),
    ("queues", 20_000_136, "consumers left when only a dead letter was there, which then came back (of the scenario)"),
    ("queues", 60_000_580, "a keeper that took over a snapshot freed no row below it before it took one of its own"),
    ("queues", 60_000_593, "the same, at another moment of the run"),
    ("queues", 60_000_618, "rows that a full disk did not free were taken for freed, and stayed"),
    ("topics", 303, "one of a set died before it was known to be in it, and kept its share of the events"),
    ("groups", 30, "who was cut off was shown a group's view that it had not come to"),
    ("groups", 103, "a message was delivered out of limbo, and said to be uncertain at the same moment"),
    ("groups", 105, "an order came before the view of the group that it was for"),
    ("groups", 139, "a sequencer left a group, and messages without an order"),
    ("groups", 50_014, "large messages whose last piece waited for a parent were taken for too many, and refused"),
    ("groups", 61_635, "who left a group that had gone on was asked for messages of views that it never was in"),
    ("groups", 62_330, "who was cut off delivered a whole run of the order where another one had only its beginning"),
    (
        "groups",
        63_626,
        "what was not safe yet was delivered, because others had delivered later messages of other groups",
    ),
    ("relays", 238, "who was leaving a group was told that all had what a member that had been away never had"),
    ("relays", 4_010, "who had left a group and joined it again was given the rest of what it had left, in part"),
    ("relays", 4_115, "a new relay waited for messages that the one before had settled"),
    ("relays", 4_268, "a sender that had been cut off was told that all had what members elsewhere never had"),
    ("relays", 4_373, "a sender that was new to the bus waited for a moment too short for any clock"),
    ("relays", 4_443, "what came out of limbo was counted in a later view than it was of"),
    ("relays", 320, "a forced primary left members with what the last one had delivered to others, and not to them"),
    ("topics", 32, "a reader that was slow was looked after again in a moment too short for any clock"),
    ("topics", 3_224, "who shared a subscription was told that it was uncertain, when members were cut off meanwhile"),
    ("topics", 12_000_142, "who shared and had been cut off was handed an event before it learnt that others had it"),
    (
        "topics",
        12_000_728,
        "who shared and had been cut off did not know what was finished meanwhile, and did it again",
    ),
    ("topics", 12_000_813, "who shared and had been cut off went on with what waited, though another had finished it"),
    ("asks", 9_100_018, "who left a group passed over a view of it, and a sender in that waited for its word for ever"),
    ("states", 777_247, "a group went on with an older state after a primary was forced, and did not say so"),
    ("states", 9_100_338, "who had waited long for a state was followed, and had less than another who was back"),
    ("states", 9_200_108, "a provider left and came back while its state travelled, and the rest of it was of another"),
    (
        "asks",
        31_000_534,
        "who had gone on before the asker came to a view was to answer what was asked there (checker)",
    ),
    ("asks", 7_107, "the last answer came in the moment in which the time was over, and was not counted"),
    ("replica", 297, "who was forced to go on without the others did what they may have done otherwise"),
    ("replica", 9_100_650, "an older state went on with what had been held for a later one"),
    ("replica", 9_100_755, "a life that went on with an older state and applied nothing was not written down"),
    ("replica", 1053, "whoever was asked for the end of a stream had come to the group after it"),
    ("replica", 1065, "a restored state held commands of its own member, who waited for their answers"),
    ("hosts", 8_100_172, "a leader went on to send pieces of a snapshot whose offer the keeper had forgotten"),
    ("hosts", 31_000_481, "a second disk was struck before the first was right again for good (of the scenario)"),
    ("transactions", 11_000_049, "states were compared that were taken one after another"),
    ("consumer-groups", 11_000_088, "keepers that had all done nothing yet were taken for settled"),
    ("spaces", 7_000_015, "a roster went on with an older state, and who knew a later epoch was not heard any more"),
    ("spaces", 32_000_101, "one that was cut off while its space ended brought tuples of it into a new one"),
    ("spaces", 32_000_305, "the same, of a partitioned space"),
    ("spaces", 32_000_072, "a keeper was given a new disk, and nobody replaced the one before (of the scenario)"),
    ("spaces", 32_000_010, "what a member that was about to leave lacked was taken to be removed, when an epoch began"),
    ("spaces", 32_000_007, "one that gave up what it had of a space that was gone took itself for an owner still"),
    ("spaces", 32_000_540, "a tuple on its way to a take that gave it back was not there for who had written it"),
    ("spaces", 60_000_386, "all left at once, and who had given up its tuples first was taken to have removed them"),
    ("spaces", 6_600_017, "a member that was about to leave asked its own replica, which no epoch brought up to date"),
    (
        "consumer-groups",
        20_000_069,
        "a keeper that had been healed took the old doubt of its store for new damage, when its disk had been full",
    ),
    ("keepers", 31_000_045, "a keeper whose state came with a snapshot never said that a voter was one already"),
    ("keepers", 31_000_682, "a store broke with a promise in it, and the leader of the epoch before was not heard"),
    ("conversations", 43_000_283, "who had left was in again by the memory of an earlier life, whose store was gone"),
]


@pytest.mark.parametrize(("scenario", "seed", "mistake"), ONCE, ids=lambda part: str(part)[:12])
def test_the_promise_is_kept_now(scenario: str, seed: int, mistake: str):
    assert play_seed(scenario, seed).failure == "", mistake
