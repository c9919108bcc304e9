"""Every bound of the system, by name, units last. A queue, a table or a cache without a line here is a defect."""

# Wire
DATAGRAM_BYTES_MAX = 65_507
"""The largest UDP payload over IPv4; no engine offers a longer path. Longer frames are sent in several datagrams."""
PATH_BYTES_LOOPBACK = 60_000
"""Below the UDP maximum, so that headers of layers added later fit into the same datagram."""
LONG_BYTES_LOOPBACK = 8 * PATH_BYTES_LOOPBACK
"""The longest frame on the loopback interface; it is carried in several datagrams."""
LONG_MESSAGE_BYTES = 1_024
"""Messages of this length or longer may share a frame that is longer than the path, so that the cost of a frame is
shared by more of them."""
PATH_BYTES_UNKNOWN = 8_192
"""Where nothing is known of the path, as in the chapter's JGroups stack."""
PATH_BYTES_ETHERNET = 1_472
"""1,500 bytes less the IPv4 and UDP headers."""
PATH_BYTES_ETHERNET_SIX = 1_452
"""The same with IPv6's longer header. IP would fragment a longer packet, and the kernel refuses to segment it."""
HEADERS_PER_FRAME_MAX = 32
BATCH_MESSAGES_MAX = 8_192
FRAME_OVERHEAD_BYTES = 512
"""Room that a batch leaves in its datagram for prefix, identities and the headers of layers."""
BODY_OVERHEAD_BYTES = 5
"""The most that msgpack adds to one body of a batch."""

FRAME_BYTES_MAX = 4 << 20
"""The largest frame that is cut to fit the path, or that compressed bytes may become."""

# Names
NAME_CHARS_MAX = 128
HOST_CHARS_MAX = 255

# Bodies
BODY_BYTES_MAX = 128 << 20
TYPES_MAX = 4_096
LARGE_PER_STREAM_MAX = 64
"""Messages larger than a frame that one stream may have under way at a time. Together they are at most
``BODY_BYTES_MAX``, which bounds what a receiver keeps of them for a stream."""
LARGE_WAITING_MAX = 4_096
"""Messages larger than a frame of which a receiver lacks only the last piece, which may wait for the message that it
answers."""

# Senders from outside
OUTSIDE_BYTES_MAX = 256 << 10
"""Bytes that a process outside of a group may have under way to the group; then its ``send`` waits."""
OUTSIDE_MESSAGES_MAX = 4_096
OUTSIDE_BODY_BYTES_MAX = 48 << 10
"""The largest message that is relayed; members may send larger ones."""
RELAY_QUEUE_BYTES_MAX = 1 << 20
"""Bytes that a member holds to forward them; senders repeat what was not accepted."""
OUTSIDERS_REMEMBERED_MAX = 4_096
"""Senders from outside whose next number a member of a group remembers, also while they are away."""

# Questions
QUESTIONS_MAX = 10_000
"""Questions that this member has asked a group and that are not answered yet."""
CALL_ARGUMENTS_MAX = 64
CALLS_AT_ONCE_MAX = 256
"""Calls of one group that run at a time; further calls wait, and fill the window of their callers."""

# Caches
CACHE_ENTRIES_MAX = 10_000
"""Entries of a replicated cache, unless its first member says otherwise."""

# Frames in pieces
CUT_FRAMES_MAX = 256
"""Frames that are being put together, of all senders."""
CUT_FRAMES_PER_SENDER_MAX = 32
CUT_BYTES_MAX = 16 << 20
CUT_S_MAX = 2.0
"""A frame whose pieces are not all there by then is lost; the protocols above repeat it."""

# Engines
ENGINE_QUEUE_BYTES_MAX = 8 << 20
"""What an engine holds while the kernel takes no more; beyond it a best-effort engine drops datagrams and counts
them."""
SOCKET_BUFFER_BYTES = 16 << 20
"""What is asked of the kernel; what it grants is in the engine's statistics."""
KEPT_HEAP_BYTES = 32 << 20
"""Free memory that a process with a socket keeps for its next datagrams."""
DATAGRAMS_PER_WAKE_MAX = 32
TRAINS_MAX = 64
"""Long datagrams, of all senders, of which some segments have come; and the bytes of those segments."""
TRAIN_BYTES_MAX = 4 << 20
TRAIN_SEGMENTS_MAX = 256
"""A datagram of 60,000 bytes in the shortest packets that a path may have."""
TCP_CONNECTIONS_MAX = 4_096
SEGMENTS_MAX = 60
"""Datagrams in one segmented send; the kernel's bound is 64 (UDP_MAX_SEGMENTS) on older kernels."""

# Flow
WINDOW_BYTES_MAX = 6_000_000
"""What one stream may have under way to a receiver. Receivers acknowledge after half of it, so that the sender can go
on with the other half meanwhile. A larger window would only make other streams wait longer."""
BATCH_BYTES_MAX = LONG_BYTES_LOOPBACK
"""The size of a batch of a few long messages: one long frame, or several that are made and sent at once."""
FEW_MESSAGES = 256
"""So many messages may gather even if they are more than a frame: several frames then share the cost of the way down,
and so few messages delay nobody for long."""
WINDOW_BYTES_MIN = 16_384
LEFTOVER_FRAMES_MAX = 1 << 17
"""Frames of views that are over, which wait to be freed."""
STALL_S = 5.0
"""A receiver that grants nothing for so long is reported, and dealt with as the group wishes."""
STREAMS_MAX = 65_536
DEPARTED_STREAMS_MAX = 4_096
"""Streams whose sender is gone and whose last number is remembered, so that an old datagram delivers nothing twice."""

# Presence
PEERS_MAX = 10_000
HELLO_PERIOD_S = 1.0
SILENCE_S = 5.0
GROUPS_PER_MEMBER_MAX = 10_000
MEMBERSHIPS_MAX = 400_000
"""Pairs of a peer and a group that it is in, on the whole bus."""
LEFT_MAX = 1_024
"""Members that said goodbye and are remembered, so that an older datagram of theirs does not bring them back."""
STRANGERS_MAX = 1_024
"""Senders whose address is remembered before anybody above knows them."""

# Views
VIEW_MEMBERS_MAX = 200
"""Agreed views are for so many; larger groups need the gossip membership."""

# Events
EVENTS_WAITING_MAX = 1_000
"""Events that wait for an iteration; then the oldest are skipped, and the iteration is told."""

# The loop
TURN_S_MAX = 0.005
"""Work without giving the loop a turn."""
LATE_S = 0.1
"""A loop that comes back this late is reported, with the stack that held it."""
DRAIN_S = 5.0

# Security
SECRET_BYTES_MIN = 16
REPLAY_WINDOW = 1_024
"""A frame that is later than this many frames is refused as a replay."""
HELD_FRAMES_MAX = 256
"""Frames that wait for the key of a view, in each direction."""
HELD_BYTES_MAX = 16 << 20
"""The bytes of the frames that came: anybody can send frames that name a key which nobody has."""
HELD_PER_STRANGER_MAX = 8
"""Frames of a peer that has not yet proven that it is there now."""
OLD_KEYS_MAX = 2
"""Keys of earlier views that are kept, for what is still under way."""
OLD_KEY_S_MAX = 10.0
REFUSALS_PER_S_MAX = 10
"""How often a member tells strangers that they are refused."""

# Logs
LOGGED_PEERS_MAX = 1_024
"""Peers of which a malformed frame is logged once; further ones are only counted."""

# Filters
FILTER_CHARS_MAX = 8_192
FILTER_DEPTH_MAX = 24
"""Conditions in conditions; ``a AND b AND c`` is one."""
FILTER_STEPS_MAX = 8
"""Names in a path such as ``a.b.c``."""
FILTER_IN_MAX = 1_024
"""Values in the list of an IN."""
INDEX_SUBSCRIPTIONS_MAX = 10_000_000
INDEX_FIELDS_MAX = 4_096
"""Fields that an index keeps sorted; conditions on other fields are evaluated one by one."""

# Topics
TOPIC_CHARS_MAX = 1_024
TOPIC_LEVELS_MAX = 32
TOPICS_CACHED_MAX = 65_536
"""Topics for which a member remembers who is interested; then it forgets all and begins anew."""
TOPICS_PER_BATCH_MAX = 256
EXTRAS_PER_BATCH_MAX = 8_192
SUBSCRIPTIONS_MAX = 1_000_000
"""Of one member."""
BACKLOG_EVENTS = 65_536
"""Events that wait for a subscriber, unless it says otherwise."""
BACKLOG_EVENTS_MAX = 1_000_000
"""The same for one that wants everything buffered."""
RETAINED_MAX = 100_000
"""Topics whose last value is kept."""
ADVERTISED_MAX = 10_000
"""Topics that one member may advertise."""
HEADERS_PER_EVENT_MAX = 64
SHARED_WAITING_MAX = 65_536
"""Events of a shared subscription that wait for a subscriber. Beyond it the oldest are dropped and reported."""
SHARED_WAITING_BYTES_MAX = 256 << 20
"""Their bytes."""
OUTBOX_BATCHES_MAX = 64
"""Batches of ``publish_soon`` that may wait for a window; then it raises."""

# Software buses
PLAN_CHARS_MAX = 1 << 20
"""Of an interconnection file."""
SLOTS_MAX = 1_000
SLOT_PORTS_MAX = 256
SLOT_CONNECTIONS_MAX = 10_000
SLOT_OCCUPANTS_MAX = 10_000
"""Of one slot, and of the whole bus."""
SLOT_QUEUE_MESSAGES = 10_000
"""Messages that one occupant may have queued, unless it says otherwise; then ``send`` raises ``Overflow``."""
SLOT_QUEUE_BYTES_MAX = 64 << 20
SLOT_DOUBTS_MAX = 1_024
"""Messages that an occupant holds while it asks the router about their route; further messages are sent again."""
SLOT_ROUTES_CACHED_MAX = 10_000
SLOT_SENDERS_REMEMBERED_MAX = 10_000
"""Senders of which an occupant remembers what it has acknowledged; the one heard least lately is forgotten first."""
SLOT_REPORTS_MAX = 1_000
"""Reports of expired messages that nobody has read; then the oldest are forgotten, and counted."""
SLOT_BUSES_MAX = 1_000
"""Buses that a communications manager lists."""

# Patterns
PATTERN_CHARS_MAX = 8_192
PATTERN_POSITIONS_MAX = 1_000
"""Places of variables in a row pattern, with what is repeated written out: ``(A B){2,3}`` has six."""
PATTERN_STEPS_MAX = 100_000
"""Pairs of a place and one that may follow it."""
PATTERN_PERMUTED_MAX = 5
"""Parts of a PERMUTE; it is written out as all their orders."""
PATTERN_VARIABLES_MAX = 60
PATTERN_ROWS_MAX = 10_000
"""Rows of one partition that a match may have, or that may wait for earlier ones."""
PATTERN_THREADS_MAX = 1_000
"""Ways to match the same rows that are still open, in one partition."""
PATTERN_PARTITIONS_MAX = 100_000
"""Partitions of which a matcher remembers something."""
PATTERN_PROBLEMS_KEPT_MAX = 1_000
"""Events that fitted no match, as a matcher keeps them to be looked at; all of them are counted."""

# Simulation
SIM_EVENTS_MAX = 50_000_000
SIM_IDLE_S_MAX = 7_200.0
"""Virtual time in which no task of the test goes on, although members talk; then the test is taken to wait for ever."""
SIM_TURNS_MAX = 1_000_000
"""Turns of the loop in one virtual moment; more of them mean that a task never waits, so that time cannot go on."""

# Store
STORE_SUBMISSIONS_MAX = 65_536
"""Writes that may wait for the disk."""
STORE_COMMIT_MAX = 8_192
"""Writes that share one fsync; with more of them the first would wait long for the last."""

# Clients
CLIENTS_MAX = 4_096
CLIENT_FRAME_BYTES_MAX = 32 << 20
CLIENT_GREETING_BYTES_MAX = 4_096
"""A frame of the handshake: nobody knows yet who sends it."""
CLIENT_REQUESTS_MAX = 1_024
"""Requests of one client that are being answered; further ones wait in its connection."""
CLIENT_EVENTS_MAX = 16_384
"""Live events that were sent to one subscription of a client and that it has not read."""

# Durable topics
DURABLE_EVENT_BYTES_MAX = 2 << 20
"""One event of a durable topic, with its headers."""
DURABLE_BATCH_BYTES_MAX = 3 << 20
"""One packed batch; below what keepers take in one submission."""
DURABLE_TOPICS_MAX = 100_000
DURABLE_SESSIONS_MAX = 100_000
"""Pairs of a publisher and a topic whose last sequence is remembered; the one that was silent longest is forgotten
first."""
DURABLE_SUBSCRIPTIONS_MAX = 100_000
STAGED_BATCHES_MAX = 262_144
"""Batches that were written and are not visible yet, of all writers."""

# Trace
TRACE_RECORDS_MAX = 1_000_000
"""What a trace layer keeps in memory when it has no file to write to."""

# Objects that talk
KQML_BYTES_MAX = 1 << 20
KQML_DEPTH_MAX = 32
"""Expressions inside each other."""
KQML_PARAMETERS_MAX = 256
OBJECTS_MAX = 100_000
"""Objects of one process that have an id."""
ALIASES_MAX = 1_000_000
"""Pairs of an alias and an object, in one process."""
OBJECT_TASKS_MAX = 64
"""Messages of one object that are handled at a time."""
OBJECT_WAITING_MAX = 4_096
"""Messages that wait for one object; further ones are refused, and their senders told."""
COMMUNICATOR_TASKS_MAX = 1_024
"""Messages of all objects that are handled at a time, without those that have taken longer than ``SLOW_S``."""
SLOW_S = 1.0
"""A handler that takes longer is reported, and does not count against ``COMMUNICATOR_TASKS_MAX`` any more."""
REPLIES_MAX = 10_000
"""Questions of one process to objects whose answers are awaited."""
SUBSCRIBERS_MAX = 10_000
"""Of one object, by ``subscribe``."""
UPDATES_WAITING_MAX = 4_096
"""Updates of one subscription that wait for its reader; then the oldest are dropped, and the reader is told."""
LOCATIONS_MAX = 10_000
"""Aliases and ids of which a process remembers where their objects are."""
NETWORK_SHADOWS_MAX = 10_000
"""Objects of one virtual network."""
GRAPH_NODES_MAX = 100_000
"""Objects, lists and dictionaries in one object message."""
GRAPH_DEPTH_MAX = 32
"""Tuples inside each other."""
QUEUED_CALLS_MAX = 10_000
"""Calls that wait on disk for their objects; further ones are refused."""
QUEUED_KEYS_MAX = 10_000
QUEUED_KEYS_BYTES_MAX = 64 << 20
"""Answers to calls with a key that are remembered after the program took them; the oldest are forgotten."""
QUEUED_ANSWERS_MAX = 10_000
"""Answers to queued calls that are kept for callers that are away; further calls are refused."""

# Transformations
CHAIN_CHARS_MAX = 1_024
CHAIN_STEPS_MAX = 32
TRANSFORMATIONS_MAX = 10_000
"""Functions that one process has registered."""
DOCUMENT_BYTES_MAX = 32 << 20
"""The longest JSON, XML, CSV, MessagePack or binary struct that is taken apart, or put together."""
DOCUMENT_DEPTH_MAX = 128
XML_ELEMENTS_MAX = 1_000_000
RECORD_FIELDS_MAX = 65_536
"""Fields of one binary struct."""
