"""Tuple spaces with one mistake each, such as a programmer makes. The stories of the protocols must find them."""

import msgspec

from pluribus.spaces.machine import SpaceMachine
from pluribus.spaces.partitioned.member import PartitionedMember
from pluribus.spaces.partitioned.moving import Moving
from pluribus.spaces.partitioned.ranges import RangeState
from pluribus.spaces.partitioned.registry import Registry, when_all
from pluribus.spaces.partitioned.server import Server
from pluribus.spaces.partitioned.watches import Watch, Watches
from pluribus.spaces.partitioned.words import Change, Interest
from pluribus.spaces.roster import Epoch
from pluribus.spaces.views.listeners import Listeners
from pluribus.spaces.views.member import ViewsMember
from pluribus.spaces.views.merging import Merge
from pluribus.spaces.views.replica import TupleReplica
from pluribus.spaces.views.words import Got, Listening
from tests.spaces import test_machine, test_moving, test_partitioned, test_views, test_watching


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


class Deserting:
    """Hands a range over without its registrations."""

    of = Watches

    def names(self, part_bytes):
        return []


class Scattered:
    """Adds every piece of a range that comes, also one that it has, or that belongs behind another."""

    of = Moving

    def _arrived(self, sender, word, now):
        pulling = self._pulling.get(word.range)
        if pulling is not None:
            made = pulling.made = pulling.made or RangeState.arriving(word)
            made.arrived(word, now)
            pulling.next += 1
            pulling.asked, pulling.again_at = False, now
            if word.last:
                del self._pulling[word.range]
                self._server.states[word.range] = made
                self._hand_out(word.range, pulling.version)
        self._ask(now)


class Trusting:
    """Takes any copy that is there for the range."""

    of = Moving

    def _fetch(self, owner, word, now):
        state = self._server.states.setdefault(word.range, RangeState(0, self._epoch.number))
        state.epoch = self._epoch.number
        self._is_stored(word.range, owner)


class Obedient:
    """Does what a question asks whenever it comes, also if it was answered before."""

    of = Server

    def _repeated(self, word):
        return False


class Premature:
    """Answers a repeated question of a waiting take before the copies know of the interest."""

    of = Server

    def _repeated(self, word):
        return False

    def _await(self, states, word, say, now):
        holder = (word.worker, word.number)
        new = [number for number, state in states.items() if holder not in state.waiting]
        one_more = when_all(len(new), say)
        for number in new:
            self.commit(number, [Change(wait=Interest(*holder, word.template, word.takes))], [one_more], now)


class Absent:
    """Believes of an epoch that it never saw open that nothing was done in it."""

    of = Server

    def was_opened(self):
        return


class Quiet:
    """Says nothing of events that it has dropped."""

    of = Watch

    def missed(self, first):
        return 0


class Blank:
    """Fills a lost range with no registrations."""

    of = Registry

    def registered(self, sender, word):
        self._inquiring.discard(sender)
        return None if self._inquiring else {}


class Deaf:
    """Begins an epoch with the registrations, and without the events that are kept for them."""

    of = Listeners

    def install(self, kept, now):
        for name in list(self.known):
            self.remove(name)
        for one in kept:
            self.add(one.name, Listening(one.template, one.left_us, one.hand_back), now)


class Repeating:
    """Begins an epoch with events that were acknowledged where the acknowledgement had come."""

    of = Merge

    def _merged_listener(self, having):
        whole = dict(event for _, one in having for event in one.events)
        return msgspec.structs.replace(having[0][1], events=sorted(whole.items()), early=[])


class Jumbled:
    """Adds the tuples of an epoch twice if a word comes twice."""

    of = ViewsMember

    def _arrived_more(self, sender, word):
        self._coming += word.add
        self._to(sender, Got(word.epoch, len(self._coming)))


class Nostalgic:
    """Brings back tuples of a roster that is gone."""

    of = Epoch

    def follows(self, before):
        return True


def faults_of(story, seeds):
    def played():
        for seed in seeds:
            story(seed)

    return played


def watching(kind, seeds):
    return faults_of(lambda seed: test_watching.faults(kind, seed), seeds)


STORIES = {
    Deserting: test_watching.test_ranges_without_copies_move_with_their_registrations_before_the_new_owner_serves,
    Scattered: lambda: test_moving.in_pieces(range(12)),
    Trusting: faults_of(test_partitioned.test_faults, range(24)),
    Obedient: test_partitioned.test_a_question_that_comes_twice_takes_nothing_for_a_request_that_is_over,
    Premature: test_partitioned.test_an_interest_of_which_no_copy_knows_is_left_again_when_its_owner_dies,
    Absent: test_moving.test_what_a_range_got_in_its_first_epoch_is_in_the_copy_of_who_never_saw_it_open,
    Jumbled: lambda: test_views.in_pieces(range(24)),
    Quiet: lambda: test_watching.dropping("partitioned"),
    Blank: test_watching.test_a_lost_range_is_told_as_a_gap_and_is_listened_to_again,
    Deaf: lambda: test_watching.moving("views"),
    Repeating: watching("views", range(24)),
    Nostalgic: lambda: test_watching.coming_back("partitioned"),
    Liberal: faults_of(test_views.test_contention, range(60)),
    Hasty: faults_of(test_views.test_faults, range(24)),
    Eternal: test_machine.test_leases_end,
    Forgetful: test_partitioned.test_waiting_takes_are_served_in_their_order_wherever_the_range_moves,
    Greedy: test_partitioned.test_an_interest_at_every_server_is_met_by_one,
}
