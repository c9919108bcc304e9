"""Tuple spaces with one mistake each, such as a programmer makes. The stories of the protocols must find them."""

from pluribus.spaces.machine import SpaceMachine
from pluribus.spaces.partitioned.member import PartitionedMember
from pluribus.spaces.partitioned.ranges import RangeState
from pluribus.spaces.views.member import ViewsMember
from pluribus.spaces.views.replica import TupleReplica
from tests.spaces import test_machine, test_partitioned, test_views


class Liberal:
    """Releases locks whoever asks, also one that another taker holds."""

    of = TupleReplica

    def unlock(self, holder, attempt):
        self.locks.clear()


class Hasty:
    """Takes a tuple that some replica has, and not all of them."""

    of = ViewsMember

    def _common(self, answers):
        return sorted(set().union(*answers))


class Eternal:
    """Grants leases that never end."""

    of = SpaceMachine

    def _stamp(self, what, which, now_us):
        return


class Forgetful:
    """Hands a range over without those who wait there."""

    of = RangeState

    def interests(self):
        return []


class Greedy:
    """Claims what it is offered at once, although it claims at another server already."""

    of = PartitionedMember

    def _offered(self, sender, word, now):
        request = self._requests.get(word.number)
        if request is not None and request.takes:
            request.offers.append((sender, word.range, word.name))
            request.word = None
            self._claim_next(request, now)


def faults_of(story, seeds):
    def played():
        for seed in seeds:
            story(seed)

    return played


STORIES = {
    Liberal: faults_of(test_views.test_contention, range(20)),
    Hasty: faults_of(test_views.test_faults, range(24)),
    Eternal: test_machine.test_leases_end,
    Forgetful: test_partitioned.test_waiting_takes_are_served_in_their_order_wherever_the_range_moves,
    Greedy: test_partitioned.test_an_interest_at_every_server_is_met_by_one,
}
