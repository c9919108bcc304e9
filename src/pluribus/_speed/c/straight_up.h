/* The straight way up: from a datagram to a group's inbox. */

#define PLACE_MAX (1LL << 62) /* of a message or a byte in its stream; a length more still is a number */

typedef struct { /* each is held */
    PyObject *data, *stream, *peer, *channel; /* no channel: the layers above have to see it */
    long long first, count, size, offset, stable;
} Usual;

static void
usual_clear(Usual *usual)
{
    Py_CLEAR(usual->data);
    Py_CLEAR(usual->stream);
    Py_CLEAR(usual->peer);
    Py_CLEAR(usual->channel);
}

static int
is_data(Straight *self, PyObject *frame, Usual *usual)
{ /* whether it has messages for all, and the reliable layer's word on them on top */
    PyObject *headers = FRAME_AT(frame, FRAME_HEADERS);
    long long to, group;
    if (!PyList_CheckExact(headers) || PyList_GET_SIZE(headers) == 0) {
        return 0;
    }
    usual->data = Py_NewRef(PyList_GET_ITEM(headers, PyList_GET_SIZE(headers) - 1));
    return (PyObject *)Py_TYPE(usual->data) == self->parts[DATA] && is_number(FRAME_AT(frame, FRAME_TO), &to) && to == 0
        && is_number(FRAME_AT(frame, FRAME_GROUP), &group) && group != 0
        && is_number(FRAME_AT(frame, FRAME_COUNT), &usual->count) && usual->count > 0
        && is_number(FRAME_AT(frame, FRAME_FIRST), &usual->first) && usual->first <= PLACE_MAX
        && is_number(FRAME_AT(frame, FRAME_SIZE), &usual->size)
        && is_number(AT(usual->data, DATA_OFFSET), &usual->offset) && usual->offset <= PLACE_MAX
        && is_number(AT(usual->data, DATA_STABLE), &usual->stable);
}

static int
is_next(Straight *self, PyObject *group, PyObject *sender, Usual *usual)
{ /* whether it is due in its stream, and nobody waits for the stream to end or to be known everywhere */
    PyObject *reliable = self->parts[RELIABLE], *stamp, *parts[] = {sender, group, zero};
    PyObject *key = tuple_of(3, parts);
    long long next, stamped, expected, granted;
    int is_so;
    if (key == NULL) {
        return -1;
    }
    is_so = looked_up(self->parts[STREAMS_IN], key, &usual->stream);
    Py_DECREF(key);
    if (is_so < 0 || usual->stream == NULL || looked_up(self->parts[PEERS], sender, &usual->peer) < 0 || usual->peer == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!is_a(self, usual->stream, INCOMING) || !is_a(self, usual->peer, PEER) || looked_up(self->parts[STAMPS], group, &stamp) < 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    /* Nothing runs from here to the last line: what is seen to be of a type stays so. */
    if (!is_exactly(AT(usual->stream, IN_AHEAD), &PyDict_Type) || !is_exactly(AT(usual->peer, PEER_ASKED_AT), &PyFloat_Type)
        || AT(usual->stream, IN_KEPT) == NULL || !is_number(AT(usual->stream, IN_NEXT), &next) || next != usual->first
        || PyDict_GET_SIZE(AT(usual->stream, IN_AHEAD)) > 0
        || !is_number(AT(usual->stream, IN_GRANTED), &granted) || granted == 0 || AT(usual->peer, PEER_SUSPECTED) != Py_False
        || PyFloat_AS_DOUBLE(AT(usual->peer, PEER_ASKED_AT)) >= 0 || PyDict_GET_SIZE(self->parts[CLOSING]) > 0
        || AT(reliable, RELIABLE_FROZEN) != Py_False || !is_number(AT(usual->data, DATA_STAMP), &stamped)
        || !is_number(stamp == NULL ? AT(reliable, RELIABLE_STAMP) : stamp, &expected) || expected != stamped) {
        Py_XDECREF(stamp);
        return 0;
    }
    Py_XDECREF(stamp);
    is_so = PySequence_Contains(self->parts[WATCHED], group);
    return is_so < 0 ? -1 : !is_so;
}

static int
is_plain(Straight *self, PyObject *frame, PyObject *group, Usual *usual)
{ /* whether no layer above has anything to do with it, and the group only has to let it be read */
    PyObject *headers = FRAME_AT(frame, FRAME_HEADERS), *kind = Py_XNewRef(FRAME_AT(frame, FRAME_KIND)), *channel;
    int is_so;
    if (headers == NULL || kind == NULL || !PyList_CheckExact(headers) || PyList_GET_SIZE(headers) != 1) {
        Py_XDECREF(kind);
        return 0;
    }
    is_so = PySequence_Contains(self->parts[MARKED], kind);
    Py_DECREF(kind);
    if (is_so != 0 || (is_so = is_in_any(self->parts[OTHERS_UP], group)) != 0) {
        return is_so < 0 ? -1 : 0;
    }
    if (looked_up(self->parts[CHANNELS], group, &channel) < 0) {
        return -1;
    }
    if (channel == NULL || !is_a(self, channel, CHANNEL) || AT(channel, CHANNEL_RELAY) != Py_None || AT(channel, CHANNEL_SEAL) != Py_None
        || AT(channel, CHANNEL_STATE) != Py_None) {
        Py_XDECREF(channel);
        return 0;
    }
    usual->channel = channel;
    return 1;
}

static PyObject *
bare_frame(PyObject *frame)
{ /* without the last header; the other one is kept for those who miss it */
    static const enum frame_slot fields[] = {FRAME_SENDER, FRAME_GROUP, FRAME_FIRST, FRAME_COUNT, FRAME_SIZE, FRAME_KIND};
    PyObject *headers = FRAME_AT(frame, FRAME_HEADERS), *given[9] = {NULL}, *made = NULL;
    int whole = is_whole_frame(frame) && PyList_CheckExact(headers) && PyList_GET_SIZE(headers) > 0;
    if (!whole) {
        PyErr_SetString(PyExc_TypeError, "a frame changed while it was received");
        return NULL;
    }
    for (int place = 0; place < 6; place++) {
        given[1 + place] = Py_NewRef(FRAME_AT(frame, fields[place]));
    }
    given[8] = Py_NewRef(FRAME_AT(frame, FRAME_BODIES));
    given[7] = PyList_GetSlice(headers, 0, PyList_GET_SIZE(headers) - 1);
    if (given[7] != NULL) {
        made = PyObject_Vectorcall(frame_type, given + 1, 0 | PY_VECTORCALL_ARGUMENTS_OFFSET, names_up);
    }
    for (int place = 1; place < 9; place++) {
        Py_XDECREF(given[place]);
    }
    return made;
}

static int
note_arrival(Straight *self, PyObject *frame, Usual *usual)
{ /* what the detector and the reliable layer know by it */
    PyObject *stream = usual->stream;
    long long known, end, delivered, kept_bytes, stable, cost = usual->size + self->charge;
    PyObject *heard, *upto, *ends, *sum;
    if ((heard = PyObject_CallNoArgs(self->parts[NOW])) == NULL) {
        return -1;
    }
    if (!is_number(AT(stream, IN_KNOWN), &known) || !is_number(AT(stream, IN_END), &end) || !is_number(AT(stream, IN_DELIVERED), &delivered)
        || !is_number(AT(stream, IN_STABLE), &stable)) {
        Py_DECREF(heard);
        PyErr_SetString(PyExc_TypeError, "a stream counts in whole numbers");
        return -1;
    }
    upto = PyLong_FromLongLong(usual->first + usual->count);
    ends = PyLong_FromLongLong(usual->offset + cost > end ? usual->offset + cost : end);
    sum = PyLong_FromLongLong(delivered + cost);
    if (upto == NULL || ends == NULL || sum == NULL) {
        Py_DECREF(heard);
        Py_XDECREF(upto);
        Py_XDECREF(ends);
        Py_XDECREF(sum);
        return -1;
    }
    put(&AT(usual->peer, PEER_HEARD_AT), heard);
    if (usual->first + usual->count > known) {
        put(&AT(stream, IN_KNOWN), Py_NewRef(upto));
    }
    put(&AT(stream, IN_NEXT), upto);
    put(&AT(stream, IN_ASKED), Py_NewRef(zero));
    put(&AT(stream, IN_END), ends);
    put(&AT(stream, IN_DELIVERED), sum);
    if (usual->stable > stable) {
        PyObject *upto_there = held(self, usual->data, DATA_STABLE);
        int failed = upto_there == NULL ? -1 : called(PyObject_CallMethodOneArg(stream, words[FORGET_UPTO], upto_there));
        Py_XDECREF(upto_there);
        if (failed < 0) {
            return -1;
        }
    }
    if (append_held(self, stream, IN_KEPT, frame) < 0) {
        return -1;
    }
    if (!is_number(AT(stream, IN_KEPT_BYTES), &kept_bytes)) {
        PyErr_SetString(PyExc_TypeError, "a stream counts in whole numbers");
        return -1;
    }
    if ((sum = PyLong_FromLongLong(kept_bytes + usual->size)) == NULL) {
        return -1;
    }
    put(&AT(stream, IN_KEPT_BYTES), sum);
    return add_to(&AT(self->parts[RELIABLE], RELIABLE_FRAMES_IN), 1) < 0
        ? -1
        : add_to(&AT(self->parts[RELIABLE], RELIABLE_MESSAGES_IN), usual->count);
}

static int
hand_over(Straight *self, PyObject *frame, PyObject *channel)
{ /* to the group */
    PyObject *dispatch = self->parts[DISPATCH], *observe = held(self, dispatch, DISPATCH_OBSERVE), *tell;
    int failed = observe == NULL ? -1 : observe == Py_None ? 0 : called(PyObject_CallOneArg(observe, frame));
    Py_XDECREF(observe);
    if (failed) {
        return -1;
    }
    put(&AT(dispatch, DISPATCH_FIRST), Py_NewRef(Py_True));
    if (append_held(self, channel, CHANNEL_INBOX, frame) < 0 || (tell = held(self, channel, CHANNEL_ON_ARRIVAL)) == NULL) {
        return -1;
    }
    failed = called(PyObject_CallNoArgs(tell));
    Py_DECREF(tell);
    return failed;
}

static int
straight_up(Straight *self, PyObject *frame)
{ /* whether that was all */
    Usual usual = {NULL};
    PyObject *bare = NULL, *group = Py_NewRef(FRAME_AT(frame, FRAME_GROUP)), *sender = Py_NewRef(FRAME_AT(frame, FRAME_SENDER));
    int is_so = is_data(self, frame, &usual) ? is_next(self, group, sender, &usual) : 0;
    if (is_so > 0) {
        is_so = is_plain(self, frame, group, &usual) < 0 || (bare = bare_frame(frame)) == NULL
                || note_arrival(self, frame, &usual) < 0
                || (usual.channel == NULL ? called(PyObject_CallOneArg(self->parts[PASS_UP], bare))
                                          : hand_over(self, bare, usual.channel))
            ? -1
            : 1;
        self->received += is_so > 0;
    }
    usual_clear(&usual);
    Py_XDECREF(bare);
    Py_DECREF(group);
    Py_DECREF(sender);
    return is_so;
}

static PyObject *
decoded(Straight *self, PyObject *data)
{ /* a frame that may be believed; NULL: the transport says what is wrong with it */
    PyObject *prefix = self->parts[PREFIX], *frame;
    long long size, count, sender;
    if (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) < PyBytes_GET_SIZE(prefix)
        || memcmp(PyBytes_AS_STRING(data), PyBytes_AS_STRING(prefix), (size_t)PyBytes_GET_SIZE(prefix)) != 0) {
        return NULL;
    }
    frame = PyObject_CallOneArg(self->parts[DECODE], data);
    if (frame == NULL) {
        PyErr_Clear();
        return NULL;
    }
    if (!PyObject_TypeCheck(frame, (PyTypeObject *)frame_type) || !is_whole_frame(frame) || !is_number(FRAME_AT(frame, FRAME_SIZE), &size)
        || !is_number(FRAME_AT(frame, FRAME_COUNT), &count) || !is_number(FRAME_AT(frame, FRAME_SENDER), &sender)
        || size > PyBytes_GET_SIZE(data) || count > PyBytes_GET_SIZE(data)) {
        Py_CLEAR(frame);
    }
    return frame;
}

static int
may_go_up(Straight *self, PyObject *addresses, PyObject *frame)
{ /* whether it is another member's, whose address is known */
    PyObject *address;
    long long sender;
    if (!is_number(FRAME_AT(frame, FRAME_SENDER), &sender) || sender == self->me
        || looked_up(addresses, FRAME_AT(frame, FRAME_SENDER), &address) < 0 || address == NULL) {
        return 0;
    }
    Py_DECREF(address);
    return is_whole_frame(frame);
}

static int
take_datagram(Straight *self, PyObject *addresses, PyObject *data, PyObject *source)
{
    PyObject *transport = self->parts[TRANSPORT], *frame = decoded(self, data);
    int taken = 0;
    if (frame == NULL) {
        PyObject *given[] = {transport, data, source};
        return called(PyObject_VectorcallMethod(words[TAKE], given, 3, NULL));
    }
    if (may_go_up(self, addresses, frame)) {
        taken = straight_up(self, frame);
    }
    if (taken == 0 && !PyErr_Occurred()) {
        PyObject *given[] = {transport, frame, source};
        taken = called(PyObject_VectorcallMethod(words[ACCEPT], given, 3, NULL));
    }
    else if (taken < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *type, *error, *trace;
        PyErr_Fetch(&type, &error, &trace);
        PyErr_NormalizeException(&type, &error, &trace);
        if (trace != NULL) {
            PyException_SetTraceback(error, trace);
        }
        PyObject *given[] = {transport, source, error};
        taken = called(PyObject_VectorcallMethod(words[FAILED], given, 3, NULL));
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
    }
    Py_DECREF(frame);
    return taken < 0 || PyErr_Occurred() ? -1 : 0;
}

static PyObject *
straight_receive(Straight *self, PyObject *datagrams)
{
    PyObject *addresses;
    int failed = !PyList_CheckExact(datagrams);
    if (is_over(self)) {
        return NULL;
    }
    addresses = Py_XNewRef(AT(self->parts[TRANSPORT], TRANSPORT_ADDRESSES)); /* no dict: every frame goes the long way */
    for (Py_ssize_t place = 0; !failed && place < PyList_GET_SIZE(datagrams); place++) {
        PyObject *datagram = PyList_GET_ITEM(datagrams, place);
        failed = !PyTuple_CheckExact(datagram) || PyTuple_GET_SIZE(datagram) != 2;
        if (!failed) {
            Py_INCREF(datagram);
            failed = take_datagram(self, addresses, PyTuple_GET_ITEM(datagram, 0), PyTuple_GET_ITEM(datagram, 1)) < 0;
            Py_DECREF(datagram);
        }
    }
    Py_XDECREF(addresses);
    if (failed) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "datagrams come as a list of pairs: bytes, and where they are from");
        }
        return NULL;
    }
    Py_RETURN_NONE;
}
