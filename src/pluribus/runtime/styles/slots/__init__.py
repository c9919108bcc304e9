"""Software buses on a bus. ``face.py`` has the methods of a bus, ``buses.py`` the software buses that a member has
open. ``station.py`` carries words between a group and the state machines of ``pluribus.slots``. ``slot.py`` is an
application's hold on a slot, ``hosts.py`` holds the map (a router), ``programs.py`` starts programs of invoked slots,
``communications.py`` lists buses."""
