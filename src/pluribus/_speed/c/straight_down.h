/* The straight way down: from a body to the engine. */

static int
goes_down(Straight *self, PyObject *group, PyObject **stream)
{ /* whether its stream is a usual one: a plain group's, in which somebody hears us */
    PyObject *key = PyTuple_Pack(2, group, zero), *acked;
    int is_so;
    if (key == NULL) {
        return -1;
    }
    *stream = PyDict_GetItemWithError(self->parts[STREAMS_OUT], key);
    Py_DECREF(key);
    if (*stream == NULL || !is_a(self, *stream, OUTGOING)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    acked = AT(*stream, OUT_ACKED);
    is_so = PyDict_Contains(acked, self->parts[ME]);
    if (is_so < 0 || PyDict_GET_SIZE(acked) <= is_so) {
        return is_so < 0 ? -1 : 0;
    }
    is_so = is_in_any(self->parts[OTHERS_DOWN], group);
    return is_so < 0 ? -1 : !is_so;
}

static PyObject *
framed(Straight *self, PyObject *stream, PyObject *group, PyObject *first, PyObject *body, PyObject *kind)
{
    PyObject *said[] = {NULL, AT(stream, OUT_OFFSET), AT(stream, OUT_STABLE), AT(stream, OUT_STAMP)};
    PyObject *data = PyObject_Vectorcall(self->parts[DATA], said + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    PyObject *headers = PyList_New(1), *bodies = PyList_New(1), *frame = NULL;
    PyObject *size = PyLong_FromSsize_t(PyObject_Size(body));
    if (headers != NULL && bodies != NULL) {
        PyList_SET_ITEM(bodies, 0, Py_NewRef(body));
        PyList_SET_ITEM(headers, 0, data);
        if (data != NULL && size != NULL && !PyErr_Occurred()) {
            PyObject *given[] = {
                NULL, self->parts[VERSION], self->parts[BUS], self->parts[ME], group, first, one, size, kind, headers, bodies};
            frame = PyObject_Vectorcall(frame_type, given + 1, 0 | PY_VECTORCALL_ARGUMENTS_OFFSET, names_down);
        }
    }
    else {
        Py_XDECREF(data);
    }
    Py_XDECREF(headers);
    Py_XDECREF(bodies);
    Py_XDECREF(size);
    return frame;
}

static int
note_sending(Straight *self, PyObject *stream, PyObject *frame)
{ /* what the reliable layer knows of it */
    long long first, offset, size, kept_bytes;
    PyObject *now, *next, *ends, *sum, *reliable = self->parts[RELIABLE];
    int mine;
    if (!is_number(FRAME_AT(frame, FRAME_FIRST), &first) || !is_number(FRAME_AT(frame, FRAME_SIZE), &size)
        || !is_number(AT(stream, OUT_OFFSET), &offset) || !is_number(AT(stream, OUT_KEPT_BYTES), &kept_bytes)) {
        PyErr_SetString(PyExc_TypeError, "a stream counts in whole numbers");
        return -1;
    }
    if ((now = PyObject_CallNoArgs(self->parts[NOW])) == NULL) {
        return -1;
    }
    next = PyLong_FromLongLong(first + 1);
    ends = PyLong_FromLongLong(offset + size + self->charge);
    sum = PyLong_FromLongLong(kept_bytes + size);
    mine = PyDict_Contains(AT(stream, OUT_ACKED), self->parts[ME]);
    if (next == NULL || ends == NULL || sum == NULL || mine < 0
        || (mine && PyDict_SetItem(AT(stream, OUT_ACKED), self->parts[ME], next) < 0)) {
        Py_DECREF(now);
        Py_XDECREF(next);
        Py_XDECREF(ends);
        Py_XDECREF(sum);
        return -1;
    }
    put(&AT(stream, OUT_TOLD_STABLE), Py_NewRef(AT(stream, OUT_STABLE)));
    put(&AT(stream, OUT_NEXT), next);
    put(&AT(stream, OUT_OFFSET), ends);
    put(&AT(stream, OUT_SENT_AT), now);
    put(&AT(stream, OUT_KEPT_BYTES), sum);
    if (mine) {
        PyObject *hear = NULL;
        int failed = PyObject_Size(AT(reliable, RELIABLE_ECHO)) == 0
            && ((hear = PyObject_GetAttr(reliable, words[HEAR_SELF])) == NULL
                || called(PyObject_CallMethodOneArg(reliable, words[STIMULUS], hear)) < 0);
        Py_XDECREF(hear);
        if (failed || append_to(AT(reliable, RELIABLE_ECHO), frame) < 0) {
            return -1;
        }
    }
    if (called(PyObject_CallMethodOneArg(AT(stream, OUT_KEPT), text_append, frame)) < 0) {
        return -1;
    }
    return add_to(&AT(reliable, RELIABLE_FRAMES_OUT), 1) < 0 ? -1 : add_to(&AT(reliable, RELIABLE_MESSAGES_OUT), 1);
}

static int
hand_down(Straight *self, PyObject *datagram)
{ /* to the transport */
    PyObject *transport = self->parts[TRANSPORT];
    long long most;
    if (!is_number(AT(transport, TRANSPORT_LONG_BYTES), &most)) {
        PyErr_SetString(PyExc_TypeError, "the longest datagram is a whole number");
        return -1;
    }
    if (PyBytes_GET_SIZE(datagram) <= most && PyList_GET_SIZE(AT(transport, TRANSPORT_TO_ALL)) == 0) {
        PyObject *lone = PyList_New(1); /* nothing waits to be settled before it */
        int failed;
        if (lone == NULL) {
            return -1;
        }
        PyList_SET_ITEM(lone, 0, Py_NewRef(datagram));
        failed = called(PyObject_CallMethodOneArg(self->parts[ENGINE], words[SEND_ALL], lone));
        Py_DECREF(lone);
        return failed;
    }
    if (PyObject_SetAttr(transport, words[UNSETTLED], Py_True) < 0) {
        return -1;
    }
    if (PyBytes_GET_SIZE(datagram) > most) {
        PyObject *given[] = {transport, zero, datagram};
        return called(PyObject_VectorcallMethod(words[CUT], given, 3, NULL));
    }
    return append_to(AT(transport, TRANSPORT_TO_ALL), datagram);
}

static int
look_at_room(Straight *self, PyObject *group, PyObject *stream)
{ /* what the reliable layer does behind every frame: wait for acknowledgements, tell how much may be sent */
    PyObject *reliable = self->parts[RELIABLE], *member, *limit;
    long long offset, told, least = LLONG_MAX, number;
    Py_ssize_t place = 0;
    int is_so, usual;
    if (AT(reliable, RELIABLE_STATUS) == Py_None && called(PyObject_CallMethodNoArgs(reliable, words[WATCH])) < 0) {
        return -1;
    }
    usual = is_number(AT(stream, OUT_TOLD), &told) && told == self->batch && is_number(AT(stream, OUT_OFFSET), &offset);
    while (usual && PyDict_Next(AT(stream, OUT_LIMITS), &place, &member, &limit)) {
        usual = is_number(limit, &number);
        least = number < least ? number : least;
    }
    if (!usual || least - offset < self->batch) {
        PyObject *key = PyTuple_Pack(2, group, zero);
        PyObject *given[] = {reliable, key, stream};
        is_so = key == NULL ? -1 : called(PyObject_VectorcallMethod(words[TELL_CREDIT], given, 3, NULL));
        Py_XDECREF(key);
        return is_so;
    }
    return 0;
}

static int
straight_down(Straight *self, PyObject *out, PyObject *group, PyObject *stream, PyObject *body, PyObject *kind)
{
    PyObject *first = AT(out, OPEN_FIRST);
    PyObject *frame = first == NULL ? NULL : framed(self, stream, group, first, body, kind);
    PyObject *datagram = frame == NULL ? NULL : PyObject_CallOneArg(self->parts[PACK], frame);
    int failed = datagram == NULL || !PyBytes_CheckExact(datagram) || note_sending(self, stream, frame) < 0;
    if (!failed) {
        put(&AT(out, OPEN_FIRST), Py_NewRef(AT(stream, OUT_NEXT)));
        put(&AT(out, OPEN_BATCHED), Py_NewRef(one));
        failed = hand_down(self, datagram) < 0 || look_at_room(self, group, stream) < 0;
    }
    Py_XDECREF(frame);
    Py_XDECREF(datagram);
    self->sent += !failed;
    return failed ? -1 : 0;
}

static int
has_stream(Straight *self, PyObject *channel)
{
    if (is_a(self, channel, CHANNEL) && AT(channel, CHANNEL_OUT) != NULL && is_a(self, AT(channel, CHANNEL_OUT), OPEN)) {
        return 1;
    }
    PyErr_SetString(PyExc_TypeError, "what is sent goes by a channel");
    return 0;
}

static PyObject *
straight_send(Straight *self, PyObject *const *given, Py_ssize_t count)
{
    PyObject *out, *group, *stream;
    int is_so;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "send takes a channel, a body and its kind");
        return NULL;
    }
    if (!has_stream(self, given[0])) {
        return NULL;
    }
    out = Py_NewRef(AT(given[0], CHANNEL_OUT));
    group = Py_NewRef(AT(given[0], CHANNEL_NUMBER));
    is_so = goes_down(self, group, &stream);
    if (is_so > 0) {
        Py_INCREF(stream);
        is_so = straight_down(self, out, group, stream, given[1], given[2]);
        Py_DECREF(stream);
    }
    else if (is_so == 0) {
        PyObject *passed[] = {out, given[1], given[2]};
        is_so = called(PyObject_VectorcallMethod(words[SEND_ALONE], passed, 3, NULL));
    }
    Py_DECREF(out);
    Py_DECREF(group);
    if (is_so < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* A message that may go at once: `Dispatch.send_alone` */

static int
has_room(Straight *self, PyObject *out, Py_ssize_t size)
{ /* whether a stream that asks and answers takes it */
    PyObject *pending = AT(out, OPEN_PENDING), *abandoned = AT(out, OPEN_ABANDONED);
    long long batched, longest;
    long long room = PyLong_AsLongLong(AT(out, OPEN_ROOM));
    if (room == -1 && PyErr_Occurred()) {
        return -1;
    }
    return PyList_CheckExact(pending) && PyList_GET_SIZE(pending) == 0 && PyList_CheckExact(abandoned)
        && PyList_GET_SIZE(abandoned) == 0 && is_number(AT(out, OPEN_BATCHED), &batched) && batched <= 1
        && is_number(AT(out, OPEN_LONGEST), &longest) && size <= longest && size < room && size < self->lone;
}

static int
begins_turn(Straight *self)
{
    PyObject *dispatch = self->parts[DISPATCH], *now = PyObject_CallNoArgs(self->parts[NOW]);
    if (now == NULL) {
        return -1;
    }
    if (AT(dispatch, DISPATCH_FIRST) != Py_True
        && PyFloat_AsDouble(now) - PyFloat_AsDouble(AT(dispatch, DISPATCH_ALONE_AT)) <= self->pause) {
        Py_DECREF(now);
        return PyErr_Occurred() ? -1 : 0;
    }
    put(&AT(dispatch, DISPATCH_FIRST), Py_NewRef(Py_False));
    put(&AT(dispatch, DISPATCH_ALONE_AT), now);
    return 1;
}

static int
goes_alone(Straight *self, PyObject *channel, PyObject *out, PyObject *body)
{
    PyObject *dispatch = self->parts[DISPATCH], *writable;
    Py_ssize_t size = PyObject_Size(body);
    int is_so;
    if (size < 0 || (is_so = has_room(self, out, size)) < 0) {
        return -1;
    }
    if (!is_so || AT(dispatch, DISPATCH_BLOCKED) != Py_False || AT(dispatch, DISPATCH_SCHEDULED) != Py_False
        || AT(channel, CHANNEL_CLOSED) != Py_False || AT(channel, CHANNEL_BLOCKED) != Py_False
        || PyObject_IsTrue(AT(channel, CHANNEL_PAUSED))) {
        return 0;
    }
    writable = PyObject_GetAttr(self->parts[ENGINE], words[WRITABLE]);
    is_so = writable == NULL ? -1 : PyObject_IsTrue(writable);
    Py_XDECREF(writable);
    return is_so > 0 ? begins_turn(self) : is_so;
}

static PyObject *
sent_alone(Straight *self, PyObject *channel, PyObject *body, PyObject *kind)
{ /* its identity, or None: it has to go the long way */
    PyObject *out, *send, *id = NULL;
    int is_so;
    if (!has_stream(self, channel)) {
        return NULL;
    }
    out = Py_NewRef(AT(channel, CHANNEL_OUT));
    is_so = goes_alone(self, channel, out, body);
    if (is_so > 0) {
        id = PyTuple_Pack(2, AT(out, OPEN_ME), AT(out, OPEN_FIRST));
        send = id == NULL ? NULL : PyObject_GetAttr((PyObject *)self, words[SEND]);
        if (send != NULL) {
            PyObject *given[] = {send, channel, body, kind};
            if (called(PyObject_Vectorcall(self->parts[RUN], given, 4, NULL)) < 0) {
                Py_CLEAR(id);
            }
            Py_DECREF(send);
        }
        else {
            Py_CLEAR(id);
        }
    }
    Py_DECREF(out);
    return is_so == 0 ? Py_NewRef(Py_None) : id;
}

static PyObject *
straight_send_alone(Straight *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 && count != 3) {
        PyErr_SetString(PyExc_TypeError, "send_alone takes a channel, a body and its kind");
        return NULL;
    }
    return sent_alone(self, given[0], given[1], count == 3 ? given[2] : self->parts[PLAIN]);
}
