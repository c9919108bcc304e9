/* The straight way down: from a body to the engine. */

static int
goes_down(Straight *self, PyObject *group, PyObject **stream)
{ /* whether its stream, a new reference, is a usual one: a plain group's, in which somebody hears us */
    PyObject *parts[] = {group, zero}, *key = tuple_of(2, parts), *acked;
    int is_so;
    *stream = NULL;
    if (key == NULL) {
        return -1;
    }
    is_so = looked_up(self->parts[STREAMS_OUT], key, stream);
    Py_DECREF(key);
    if (is_so < 0) {
        return -1;
    }
    if (*stream == NULL || !is_a(self, *stream, OUTGOING) || !is_exactly(AT(*stream, OUT_ACKED), &PyDict_Type)
        || !is_exactly(AT(*stream, OUT_LIMITS), &PyDict_Type) || AT(*stream, OUT_KEPT) == NULL
        || !is_exactly(AT(self->parts[RELIABLE], RELIABLE_ECHO), &PyList_Type)
        || !is_exactly(AT(self->parts[TRANSPORT], TRANSPORT_TO_ALL), &PyList_Type)) {
        return 0;
    }
    acked = Py_NewRef(AT(*stream, OUT_ACKED));
    is_so = PyDict_Contains(acked, self->parts[ME]);
    if (is_so >= 0) {
        is_so = PyDict_GET_SIZE(acked) > is_so;
    }
    Py_DECREF(acked);
    if (is_so <= 0) {
        return is_so;
    }
    is_so = is_in_any(self->parts[OTHERS_DOWN], group);
    return is_so < 0 ? -1 : !is_so;
}

static PyObject *
framed(Straight *self, PyObject *stream, PyObject *group, PyObject *first, PyObject *body, PyObject *kind)
{
    PyObject *said[] = {NULL, held(self, stream, OUT_OFFSET), held(self, stream, OUT_STABLE), held(self, stream, OUT_STAMP)};
    PyObject *data = NULL, *headers = NULL, *bodies = NULL, *size = NULL, *frame = NULL;
    Py_ssize_t length;
    if (said[1] != NULL && said[2] != NULL && said[3] != NULL) {
        data = PyObject_Vectorcall(self->parts[DATA], said + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    if (data != NULL && (length = PyObject_Size(body)) >= 0 && (size = PyLong_FromSsize_t(length)) != NULL
        && (headers = PyList_New(1)) != NULL && (bodies = PyList_New(1)) != NULL) {
        PyList_SET_ITEM(bodies, 0, Py_NewRef(body));
        PyList_SET_ITEM(headers, 0, Py_NewRef(data));
        PyObject *given[] = {
            NULL, self->parts[VERSION], self->parts[BUS], self->parts[ME], group, first, one, size, kind, headers, bodies};
        frame = PyObject_Vectorcall(frame_type, given + 1, 0 | PY_VECTORCALL_ARGUMENTS_OFFSET, names_down);
    }
    for (int place = 1; place < 4; place++) {
        Py_XDECREF(said[place]);
    }
    Py_XDECREF(data);
    Py_XDECREF(headers);
    Py_XDECREF(bodies);
    Py_XDECREF(size);
    return frame;
}

static int
note_in_stream(Straight *self, PyObject *stream, PyObject *frame)
{ /* what its stream knows of it; 1 if this member hears itself */
    long long first, offset, size, kept_bytes;
    PyObject *now = PyObject_CallNoArgs(self->parts[NOW]), *acked = NULL, *next = NULL, *ends = NULL, *sum = NULL;
    int mine = -1;
    if (now == NULL) {
        return -1;
    }
    if (!is_number(FRAME_AT(frame, FRAME_FIRST), &first) || !is_number(FRAME_AT(frame, FRAME_SIZE), &size)
        || !is_number(AT(stream, OUT_OFFSET), &offset) || !is_number(AT(stream, OUT_KEPT_BYTES), &kept_bytes)) {
        PyErr_SetString(PyExc_TypeError, "a stream counts in whole numbers");
    }
    else if ((acked = held(self, stream, OUT_ACKED)) != NULL) {
        next = PyLong_FromLongLong(first + 1);
        ends = PyLong_FromLongLong(offset + size + self->charge);
        sum = PyLong_FromLongLong(kept_bytes + size);
        mine = next == NULL || ends == NULL || sum == NULL ? -1 : PyDict_Contains(acked, self->parts[ME]);
        if (mine > 0 && PyDict_SetItem(acked, self->parts[ME], next) < 0) {
            mine = -1;
        }
        if (mine >= 0 && AT(stream, OUT_STABLE) == NULL) {
            PyErr_SetString(PyExc_TypeError, "a stream changed while a message was sent");
            mine = -1;
        }
    }
    Py_XDECREF(acked);
    if (mine < 0) {
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
    return mine;
}

static int
note_sending(Straight *self, PyObject *stream, PyObject *frame)
{ /* what the reliable layer knows of it */
    PyObject *reliable = self->parts[RELIABLE];
    int mine = note_in_stream(self, stream, frame);
    if (mine < 0) {
        return -1;
    }
    if (mine) {
        PyObject *echo = held(self, reliable, RELIABLE_ECHO), *hear = NULL;
        int failed = echo == NULL
            || (PyList_GET_SIZE(echo) == 0
                && ((hear = PyObject_GetAttr(reliable, words[HEAR_SELF])) == NULL
                    || called(PyObject_CallMethodOneArg(reliable, words[STIMULUS], hear)) < 0));
        Py_XDECREF(hear);
        Py_XDECREF(echo);
        if (failed || append_held(self, reliable, RELIABLE_ECHO, frame) < 0) {
            return -1;
        }
    }
    if (append_held(self, stream, OUT_KEPT, frame) < 0) {
        return -1;
    }
    return add_to(&AT(reliable, RELIABLE_FRAMES_OUT), 1) < 0 ? -1 : add_to(&AT(reliable, RELIABLE_MESSAGES_OUT), 1);
}

static int
hand_down(Straight *self, PyObject *datagram)
{ /* to the transport */
    PyObject *transport = self->parts[TRANSPORT];
    long long most;
    if (!is_exactly(AT(transport, TRANSPORT_TO_ALL), &PyList_Type) || !is_number(AT(transport, TRANSPORT_LONG_BYTES), &most)) {
        PyErr_SetString(PyExc_TypeError, "a transport has a list of what goes to all, and the longest datagram is a whole number");
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
    return append_held(self, transport, TRANSPORT_TO_ALL, datagram);
}

static int
look_at_room(Straight *self, PyObject *group, PyObject *stream)
{ /* what the reliable layer does behind every frame: wait for acknowledgements, tell how much may be sent */
    PyObject *reliable = self->parts[RELIABLE], *limits, *member, *limit;
    long long offset = 0, told, least = LLONG_MAX, number;
    Py_ssize_t place = 0;
    int is_so, usual;
    if (AT(reliable, RELIABLE_STATUS) == Py_None && called(PyObject_CallMethodNoArgs(reliable, words[WATCH])) < 0) {
        return -1;
    }
    limits = AT(stream, OUT_LIMITS); /* nothing runs while it is read */
    usual = is_kind(limits, DICT) && is_number(AT(stream, OUT_TOLD), &told) && told == self->batch
        && is_number(AT(stream, OUT_OFFSET), &offset);
    while (usual && PyDict_Next(limits, &place, &member, &limit)) {
        usual = is_number(limit, &number);
        least = usual && number < least ? number : least;
    }
    if (!usual || least - offset < self->batch) {
        PyObject *parts[] = {group, zero}, *key = tuple_of(2, parts);
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
    PyObject *first = held(self, out, OPEN_FIRST), *next = NULL;
    PyObject *frame = first == NULL ? NULL : framed(self, stream, group, first, body, kind);
    PyObject *datagram = frame == NULL ? NULL : PyObject_CallOneArg(self->parts[PACK], frame);
    int failed = datagram == NULL;
    if (!failed && (!PyBytes_CheckExact(datagram) || !PyObject_TypeCheck(frame, (PyTypeObject *)frame_type))) {
        PyErr_SetString(PyExc_TypeError, "a frame is packed into bytes");
        failed = 1;
    }
    failed = failed || note_sending(self, stream, frame) < 0 || (next = held(self, stream, OUT_NEXT)) == NULL;
    if (!failed) {
        put(&AT(out, OPEN_FIRST), Py_NewRef(next));
        put(&AT(out, OPEN_BATCHED), Py_NewRef(one));
        failed = hand_down(self, datagram) < 0 || look_at_room(self, group, stream) < 0;
    }
    Py_XDECREF(next);
    Py_XDECREF(first);
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
    PyObject *out, *group, *stream = NULL;
    int is_so;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "send takes a channel, a body and its kind");
        return NULL;
    }
    if (is_over(self) || !has_stream(self, given[0]) || (group = held(self, given[0], CHANNEL_NUMBER)) == NULL) {
        return NULL;
    }
    out = Py_NewRef(AT(given[0], CHANNEL_OUT));
    is_so = goes_down(self, group, &stream);
    if (is_so > 0) {
        is_so = straight_down(self, out, group, stream, given[1], given[2]);
    }
    else if (is_so == 0) {
        PyObject *passed[] = {out, given[1], given[2]};
        is_so = called(PyObject_VectorcallMethod(words[SEND_ALONE], passed, 3, NULL));
    }
    Py_XDECREF(stream);
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
    long long batched, longest;
    long long room = PyLong_AsLongLong(AT(out, OPEN_ROOM));
    if (room == -1 && PyErr_Occurred()) {
        return -1;
    }
    return PyList_GET_SIZE(AT(out, OPEN_PENDING)) == 0 && PyList_GET_SIZE(AT(out, OPEN_ABANDONED)) == 0
        && is_number(AT(out, OPEN_BATCHED), &batched) && batched <= 1 && is_number(AT(out, OPEN_LONGEST), &longest)
        && size <= longest && size < room && size < self->lone;
}

static int
begins_turn(Straight *self)
{
    PyObject *dispatch = self->parts[DISPATCH], *now = PyObject_CallNoArgs(self->parts[NOW]);
    if (now == NULL) {
        return -1;
    }
    if (!PyFloat_CheckExact(now) || !is_exactly(AT(dispatch, DISPATCH_ALONE_AT), &PyFloat_Type)) {
        Py_DECREF(now);
        return 0;
    }
    if (AT(dispatch, DISPATCH_FIRST) != Py_True
        && PyFloat_AS_DOUBLE(now) - PyFloat_AS_DOUBLE(AT(dispatch, DISPATCH_ALONE_AT)) <= self->pause) {
        Py_DECREF(now);
        return 0;
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
    if (size < 0) {
        return -1;
    }
    if (!is_exactly(AT(out, OPEN_ROOM), &PyLong_Type) || !is_exactly(AT(out, OPEN_PENDING), &PyList_Type)
        || !is_exactly(AT(out, OPEN_ABANDONED), &PyList_Type) || !is_exactly(AT(channel, CHANNEL_PAUSED), &PyUnicode_Type)) {
        return 0;
    }
    if ((is_so = has_room(self, out, size)) < 0) {
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
    if (is_over(self) || !has_stream(self, channel)) {
        return NULL;
    }
    out = Py_NewRef(AT(channel, CHANNEL_OUT));
    is_so = goes_alone(self, channel, out, body);
    if (is_so > 0) {
        PyObject *parts[] = {AT(out, OPEN_ME), AT(out, OPEN_FIRST)};
        id = tuple_of(2, parts);
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
