/* What the straight way is made of: layers and what they have, where their objects have it, small steps. */

/* What `runtime/group/straight.py` gives by these names: layers and what they have, numbers, types. */
#define ALL_PARTS(X) \
    X(TRANSPORT, "transport") X(RELIABLE, "reliable") X(DISPATCH, "dispatch") X(ENGINE, "engine") X(RUN, "run") \
    X(DECODE, "decode") X(PACK, "pack") X(PREFIX, "prefix") X(NOW, "now") X(PEERS, "peers") \
    X(STREAMS_IN, "streams_in") X(STREAMS_OUT, "streams_out") X(STAMPS, "stamps") X(CLOSING, "closing") X(CHANNELS, "channels") \
    X(MARKED, "marked") X(PASS_UP, "pass_up") X(WATCHED, "watched") X(OTHERS_UP, "others_up") X(OTHERS_DOWN, "others_down") X(ME, "me") X(BUS, "bus") \
    X(VERSION, "version") X(CHARGE, "charge") X(BATCH, "batch") X(LONE, "lone") X(PAUSE, "pause") \
    X(PLAIN, "plain") X(DATA, "data") X(INCOMING, "incoming") X(OUTGOING, "outgoing") X(OPEN, "open") \
    X(PEER, "peer") X(CHANNEL, "channel") X(SAMPLES, "samples")

/* What objects of these types, or these layers, have in places of their own, and of which type it is there: what is read as
 * a structure is looked at first. */
#define ALL_SLOTS(X) \
    X(DATA_OFFSET, DATA, "offset", WHOLE_NUMBER) X(DATA_STABLE, DATA, "stable", WHOLE_NUMBER) \
    X(DATA_STAMP, DATA, "stamp", WHOLE_NUMBER) X(IN_NEXT, INCOMING, "next", WHOLE_NUMBER) \
    X(IN_KNOWN, INCOMING, "known", WHOLE_NUMBER) X(IN_STABLE, INCOMING, "stable", WHOLE_NUMBER) \
    X(IN_END, INCOMING, "end", WHOLE_NUMBER) X(IN_DELIVERED, INCOMING, "delivered", WHOLE_NUMBER) \
    X(IN_GRANTED, INCOMING, "granted", WHOLE_NUMBER) X(IN_AHEAD, INCOMING, "ahead", DICT) \
    X(IN_KEPT, INCOMING, "kept", ANY) X(IN_KEPT_BYTES, INCOMING, "kept_bytes", WHOLE_NUMBER) \
    X(IN_ASKED, INCOMING, "asked", WHOLE_NUMBER) X(OUT_NEXT, OUTGOING, "next", WHOLE_NUMBER) \
    X(OUT_OFFSET, OUTGOING, "offset", WHOLE_NUMBER) X(OUT_STABLE, OUTGOING, "stable", WHOLE_NUMBER) \
    X(OUT_TOLD_STABLE, OUTGOING, "told_stable", WHOLE_NUMBER) X(OUT_KEPT, OUTGOING, "kept", ANY) \
    X(OUT_KEPT_BYTES, OUTGOING, "kept_bytes", WHOLE_NUMBER) X(OUT_ACKED, OUTGOING, "acked", DICT) \
    X(OUT_LIMITS, OUTGOING, "limits", DICT) X(OUT_STAMP, OUTGOING, "stamp", WHOLE_NUMBER) \
    X(OUT_SENT_AT, OUTGOING, "sent_at", FLOAT) X(OUT_TOLD, OUTGOING, "told", WHOLE_NUMBER) \
    X(OPEN_FIRST, OPEN, "first", WHOLE_NUMBER) X(OPEN_BATCHED, OPEN, "batched", WHOLE_NUMBER) \
    X(OPEN_PENDING, OPEN, "pending", LIST) X(OPEN_ABANDONED, OPEN, "abandoned", LIST) \
    X(OPEN_ROOM, OPEN, "room", WHOLE_NUMBER) X(OPEN_LONGEST, OPEN, "longest", WHOLE_NUMBER) \
    X(OPEN_ME, OPEN, "me", WHOLE_NUMBER) X(PEER_HEARD_AT, PEER, "heard_at", FLOAT) \
    X(PEER_SUSPECTED, PEER, "suspected", FLAG) X(PEER_ASKED_AT, PEER, "asked_at", FLOAT) \
    X(CHANNEL_BLOCKED, CHANNEL, "blocked", FLAG) X(CHANNEL_CLOSED, CHANNEL, "closed", FLAG) \
    X(CHANNEL_INBOX, CHANNEL, "inbox", ANY) X(CHANNEL_NUMBER, CHANNEL, "number", WHOLE_NUMBER) \
    X(CHANNEL_ON_ARRIVAL, CHANNEL, "on_arrival", ANY) X(CHANNEL_OUT, CHANNEL, "out", ANY) \
    X(CHANNEL_PAUSED, CHANNEL, "paused", TEXT_KIND) X(CHANNEL_RELAY, CHANNEL, "relay", ANY) \
    X(CHANNEL_SEAL, CHANNEL, "seal", ANY) X(CHANNEL_STATE, CHANNEL, "state", ANY) \
    X(TRANSPORT_ADDRESSES, TRANSPORT, "_addresses", DICT) \
    X(TRANSPORT_LONG_BYTES, TRANSPORT, "_long_bytes", WHOLE_NUMBER) X(TRANSPORT_TO_ALL, TRANSPORT, "_to_all", LIST) \
    X(RELIABLE_ECHO, RELIABLE, "_echo", LIST) X(RELIABLE_FROZEN, RELIABLE, "_frozen", FLAG) \
    X(RELIABLE_STAMP, RELIABLE, "_stamp", WHOLE_NUMBER) X(RELIABLE_STATUS, RELIABLE, "_status", ANY) \
    X(RELIABLE_FRAMES_IN, RELIABLE, "frames_in", WHOLE_NUMBER) \
    X(RELIABLE_FRAMES_OUT, RELIABLE, "frames_out", WHOLE_NUMBER) \
    X(RELIABLE_MESSAGES_IN, RELIABLE, "messages_in", WHOLE_NUMBER) \
    X(RELIABLE_MESSAGES_OUT, RELIABLE, "messages_out", WHOLE_NUMBER) \
    X(DISPATCH_ALONE_AT, DISPATCH, "_alone_at", FLOAT) X(DISPATCH_BLOCKED, DISPATCH, "blocked", FLAG) \
    X(DISPATCH_FIRST, DISPATCH, "_first", FLAG) X(DISPATCH_OBSERVE, DISPATCH, "observe", ANY) \
    X(DISPATCH_SCHEDULED, DISPATCH, "_scheduled", FLAG)

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

enum kind { ANY, DICT, LIST, FLOAT, FLAG, TEXT_KIND, WHOLE_NUMBER, KINDS };
static PyTypeObject *const kind_types[KINDS] = {
    [DICT] = &PyDict_Type, [LIST] = &PyList_Type, [FLOAT] = &PyFloat_Type, [FLAG] = &PyBool_Type, [TEXT_KIND] = &PyUnicode_Type};
static const char *const kind_names[KINDS] = {"there", "a dict", "a list", "a float", "a bool", "a str", "a whole number"};

#define PLACE(name, type, text, kind) {type, text, kind},
static const struct {
    enum part type;
    const char *name;
    enum kind kind;
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
is_kind(PyObject *object, enum kind kind)
{
    if (object == NULL) {
        return 0;
    }
    return kind == WHOLE_NUMBER ? PyLong_Check(object) : kind_types[kind] == NULL || Py_IS_TYPE(object, kind_types[kind]);
}

static int
is_exactly(PyObject *object, PyTypeObject *type)
{ /* whether a field is there, and of the type that it is read as: true until anything else runs */
    return object != NULL && Py_IS_TYPE(object, type);
}

static PyObject *
held(Straight *self, PyObject *object, enum slot slot)
{ /* a field: a new reference, or an error */
    PyObject *found = AT(object, slot);
    if (!is_kind(found, slot_names[slot].kind)) {
        PyErr_Format(
            PyExc_TypeError, "%s.%s is to be %s, not %s", Py_TYPE(object)->tp_name, slot_names[slot].name,
            kind_names[slot_names[slot].kind], found == NULL ? "deleted" : Py_TYPE(found)->tp_name);
        return NULL;
    }
    return Py_NewRef(found);
}

static int
is_over(Straight *self)
{
    if (self->parts[0] == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this straight way was collected");
    }
    return self->parts[0] == NULL;
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

static int
append_held(Straight *self, PyObject *object, enum slot slot, PyObject *element)
{ /* to a list or a deque that an object has */
    PyObject *line = held(self, object, slot);
    int failed = line == NULL ? -1 : append_to(line, element);
    Py_XDECREF(line);
    return failed;
}
