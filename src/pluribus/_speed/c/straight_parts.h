/* What the straight way is made of: layers and what they have, where their objects have it, small steps. */

/* What `runtime/group/straight.py` gives by these names: layers and what they have, numbers, types. */
#define ALL_PARTS(X) \
    X(TRANSPORT, "transport") X(RELIABLE, "reliable") X(DISPATCH, "dispatch") X(ENGINE, "engine") X(RUN, "run") \
    X(DECODE, "decode") X(PACK, "pack") X(PREFIX, "prefix") X(NOW, "now") X(PEERS, "peers") \
    X(STREAMS_IN, "streams_in") X(STREAMS_OUT, "streams_out") X(STAMPS, "stamps") X(CLOSING, "closing") X(CHANNELS, "channels") \
    X(MARKED, "marked") X(PASS_UP, "pass_up") X(WATCHED, "watched") X(OTHERS_UP, "others_up") X(OTHERS_DOWN, "others_down") X(ME, "me") X(BUS, "bus") \
    X(VERSION, "version") X(CHARGE, "charge") X(BATCH, "batch") X(LONE, "lone") X(PAUSE, "pause") \
    X(PLAIN, "plain") X(DATA, "data") X(INCOMING, "incoming") X(OUTGOING, "outgoing") X(OPEN, "open") \
    X(PEER, "peer") X(CHANNEL, "channel")

/* What objects of these types, or these layers, have in places of their own. */
#define ALL_SLOTS(X) \
    X(DATA_OFFSET, DATA, "offset") X(DATA_STABLE, DATA, "stable") X(DATA_STAMP, DATA, "stamp") \
    X(IN_NEXT, INCOMING, "next") X(IN_KNOWN, INCOMING, "known") X(IN_STABLE, INCOMING, "stable") \
    X(IN_END, INCOMING, "end") X(IN_DELIVERED, INCOMING, "delivered") X(IN_GRANTED, INCOMING, "granted") \
    X(IN_AHEAD, INCOMING, "ahead") X(IN_KEPT, INCOMING, "kept") X(IN_KEPT_BYTES, INCOMING, "kept_bytes") \
    X(IN_ASKED, INCOMING, "asked") X(OUT_NEXT, OUTGOING, "next") X(OUT_OFFSET, OUTGOING, "offset") \
    X(OUT_STABLE, OUTGOING, "stable") X(OUT_TOLD_STABLE, OUTGOING, "told_stable") X(OUT_KEPT, OUTGOING, "kept") \
    X(OUT_KEPT_BYTES, OUTGOING, "kept_bytes") X(OUT_ACKED, OUTGOING, "acked") X(OUT_LIMITS, OUTGOING, "limits") \
    X(OUT_STAMP, OUTGOING, "stamp") X(OUT_SENT_AT, OUTGOING, "sent_at") X(OUT_TOLD, OUTGOING, "told") \
    X(OPEN_FIRST, OPEN, "first") X(OPEN_BATCHED, OPEN, "batched") X(OPEN_PENDING, OPEN, "pending") \
    X(OPEN_ABANDONED, OPEN, "abandoned") X(OPEN_ROOM, OPEN, "room") X(OPEN_LONGEST, OPEN, "longest") \
    X(OPEN_ME, OPEN, "me") X(PEER_HEARD_AT, PEER, "heard_at") X(PEER_SUSPECTED, PEER, "suspected") \
    X(PEER_ASKED_AT, PEER, "asked_at") X(CHANNEL_BLOCKED, CHANNEL, "blocked") X(CHANNEL_CLOSED, CHANNEL, "closed") \
    X(CHANNEL_INBOX, CHANNEL, "inbox") X(CHANNEL_NUMBER, CHANNEL, "number") X(CHANNEL_ON_ARRIVAL, CHANNEL, "on_arrival") \
    X(CHANNEL_OUT, CHANNEL, "out") X(CHANNEL_PAUSED, CHANNEL, "paused") X(CHANNEL_RELAY, CHANNEL, "relay") \
    X(CHANNEL_SEAL, CHANNEL, "seal") X(CHANNEL_STATE, CHANNEL, "state") X(TRANSPORT_ADDRESSES, TRANSPORT, "_addresses") \
    X(TRANSPORT_LONG_BYTES, TRANSPORT, "_long_bytes") X(TRANSPORT_TO_ALL, TRANSPORT, "_to_all") X(RELIABLE_ECHO, RELIABLE, "_echo") \
    X(RELIABLE_FROZEN, RELIABLE, "_frozen") X(RELIABLE_STAMP, RELIABLE, "_stamp") X(RELIABLE_STATUS, RELIABLE, "_status") \
    X(RELIABLE_FRAMES_IN, RELIABLE, "frames_in") X(RELIABLE_FRAMES_OUT, RELIABLE, "frames_out") X(RELIABLE_MESSAGES_IN, RELIABLE, "messages_in") \
    X(RELIABLE_MESSAGES_OUT, RELIABLE, "messages_out") X(DISPATCH_ALONE_AT, DISPATCH, "_alone_at") X(DISPATCH_BLOCKED, DISPATCH, "blocked") \
    X(DISPATCH_FIRST, DISPATCH, "_first") X(DISPATCH_OBSERVE, DISPATCH, "observe") X(DISPATCH_SCHEDULED, DISPATCH, "_scheduled")

/* What is called, or asked by name. */
#define ALL_WORDS(X) \
    X(ACCEPT, "accept") X(CUT, "_cut") X(FAILED, "failed") X(FORGET_UPTO, "forget_upto") \
    X(HEAR_SELF, "_hear_self") X(SEND, "send") X(SEND_ALL, "send_all") X(SEND_ALONE, "send_alone") \
    X(STIMULUS, "stimulus") X(TAKE, "take") X(TELL_CREDIT, "_tell_credit") X(UNSETTLED, "unsettled") \
    X(WATCH, "_watch") X(WRITABLE, "writable")

#define NAMED(name, ...) name,
enum part { ALL_PARTS(NAMED) PARTS };
enum slot { ALL_SLOTS(NAMED) SLOTS };
enum word { ALL_WORDS(NAMED) WORDS };
#undef NAMED

#define TEXT(name, text) text,
static const char *const part_names[PARTS] = {ALL_PARTS(TEXT)};
static const char *const word_texts[WORDS] = {ALL_WORDS(TEXT)};
#undef TEXT

#define PLACE(name, type, text) {type, text},
static const struct {
    enum part type;
    const char *name;
} slot_names[SLOTS] = {ALL_SLOTS(PLACE)};
#undef PLACE

static PyObject *words[WORDS], *zero, *one, *names_up, *names_down;

typedef struct {
    PyObject_HEAD
    PyObject *parts[PARTS];
    Py_ssize_t slots[SLOTS];
    long long me, charge, batch, lone;
    double pause;
    long long received, sent; /* frames that went this way */
} Straight;

#define AT(object, slot) SLOT(object, self->slots[slot])

static PyObject *
names_of(const char *const *texts, Py_ssize_t count)
{
    PyObject *names = PyTuple_New(count);
    for (Py_ssize_t place = 0; names != NULL && place < count; place++) {
        PyObject *name = PyUnicode_InternFromString(texts[place]);
        if (name == NULL) {
            Py_CLEAR(names);
        }
        else {
            PyTuple_SET_ITEM(names, place, name);
        }
    }
    return names;
}

static int
name_words(void)
{
    static const char *const up[] = {"sender", "group", "first", "count", "size", "kind", "headers", "bodies"};
    static const char *const down[] = {
        "version", "bus", "sender", "group", "first", "count", "size", "kind", "headers", "bodies"};
    for (int place = 0; place < WORDS; place++) {
        if ((words[place] = PyUnicode_InternFromString(word_texts[place])) == NULL) {
            return -1;
        }
    }
    return (zero = PyLong_FromLong(0)) == NULL || (one = PyLong_FromLong(1)) == NULL || (names_up = names_of(up, 8)) == NULL
            || (names_down = names_of(down, 10)) == NULL
        ? -1
        : 0;
}

/* Small steps */

static int
put(PyObject **place, PyObject *value)
{ /* the reference is given away */
    PyObject *before = *place;
    *place = value;
    Py_XDECREF(before);
    return 0;
}

static int
is_a(Straight *self, PyObject *object, enum part type)
{
    return PyObject_TypeCheck(object, (PyTypeObject *)self->parts[type]);
}

static int
is_in_any(PyObject *containers, PyObject *group)
{
    int is_in = 0;
    for (Py_ssize_t place = 0; !is_in && place < PyTuple_GET_SIZE(containers); place++) {
        is_in = PySequence_Contains(PyTuple_GET_ITEM(containers, place), group);
    }
    return is_in;
}

static int
add_to(PyObject **counter, long long more)
{
    long long number;
    PyObject *sum = is_number(*counter, &number) ? PyLong_FromLongLong(number + more) : NULL;
    if (sum == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a counter is a whole number");
        }
        return -1;
    }
    return put(counter, sum);
}

static int
append_to(PyObject *line, PyObject *element)
{ /* a list or a deque */
    return PyList_CheckExact(line) ? PyList_Append(line, element)
                                   : called(PyObject_CallMethodOneArg(line, text_append, element));
}
