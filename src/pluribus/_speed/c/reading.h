/* What has come to a member for its program to read. `reading.py` says what is for what. */

typedef struct {
    PyObject_HEAD
    PyObject *inbox; /* a deque */
    PyObject *state;
    PyObject *taken;  /* a dict */
    PyObject *people; /* a dict */
    long long taken_bytes, plain, frame_bytes, busy_bytes, idle_bytes;
} Reading;

static int
reading_traverse(Reading *self, visitproc visit, void *arg)
{
    Py_VISIT(self->inbox);
    Py_VISIT(self->state);
    Py_VISIT(self->taken);
    Py_VISIT(self->people);
    return 0;
}

static int
reading_clear(Reading *self)
{
    Py_CLEAR(self->inbox);
    Py_CLEAR(self->state);
    Py_CLEAR(self->taken);
    Py_CLEAR(self->people);
    return 0;
}

static void
reading_dealloc(Reading *self)
{
    PyObject_GC_UnTrack(self);
    reading_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Bodies in a frame as it came: a msgpack array of byte strings */

static const unsigned char *
after_head(const unsigned char *at, const unsigned char *end, const unsigned char *heads, size_t *size)
{ /* of a string or an array, by what its three forms begin with: those with a length of one, two or four bytes */
    size_t bytes = 1;
    while (at < end && bytes <= 4 && *at != heads[bytes / 2]) {
        bytes *= 2;
    }
    if (at >= end || bytes > 4 || (size_t)(end - at) <= bytes) {
        return NULL;
    }
    *size = 0;
    for (at++; bytes > 0; bytes--) {
        *size = *size << 8 | *at++;
    }
    return at;
}

static const unsigned char *
next_body(const unsigned char *at, const unsigned char *end, size_t *size)
{
    static const unsigned char heads[] = {0xC4, 0xC5, 0xC6};
    at = after_head(at, end, heads, size);
    return at == NULL || (size_t)(end - at) < *size ? NULL : at;
}

static const unsigned char *
first_body(const unsigned char *at, const unsigned char *end, long long count)
{ /* NULL: there are not so many bodies, and nothing else */
    static const unsigned char heads[] = {0xC1, 0xDC, 0xDD}; /* the first begins nothing */
    const unsigned char *first, *next;
    size_t said, size;
    if (at < end && *at >> 4 == 9) {
        said = *at & 15;
        first = at + 1;
    }
    else {
        first = after_head(at, end, heads, &said);
    }
    if (first == NULL || said != (size_t)count) {
        return NULL;
    }
    for (next = first; said > 0; said--) {
        next = next_body(next, end, &size);
        if (next == NULL) {
            return NULL;
        }
        next += size;
    }
    return next == end ? first : NULL;
}

/* Messages: those of a frame, one after another. A body is made when its message is: then it is in the processor's cache
 * when the program reads it, and mostly in the place of the one before. */

typedef struct {
    PyObject_HEAD
    PyObject *bodies; /* a list; or NULL, and they are in the view */
    Py_buffer view;
    const unsigned char *at;
    PyObject *sender;
    long long first;
    Py_ssize_t place, count;
} Messages;

static PyTypeObject MessagesType;

static void
messages_end(Messages *self)
{
    Py_CLEAR(self->bodies);
    self->count = self->place = 0;
    if (self->view.obj != NULL) {
        PyBuffer_Release(&self->view);
    }
}

static void
messages_dealloc(Messages *self)
{
    messages_end(self);
    Py_XDECREF(self->sender);
    PyObject_Free(self);
}

static PyObject *
message_of(PyObject *body, PyObject *sender, long long number)
{ /* as Message(body, sender, (sender, number)) makes it */
    PyObject *counted = PyLong_FromLongLong(number), *id = counted == NULL ? NULL : PyTuple_New(2), *made = NULL;
    if (id != NULL) {
        PyTuple_SET_ITEM(id, 0, Py_NewRef(sender));
        PyTuple_SET_ITEM(id, 1, Py_NewRef(counted));
        made = ((PyTypeObject *)message_type)->tp_alloc((PyTypeObject *)message_type, 0);
    }
    Py_XDECREF(counted);
    if (made == NULL) {
        Py_XDECREF(id);
        return NULL;
    }
    MESSAGE_AT(made, MESSAGE_BODY) = Py_NewRef(body);
    MESSAGE_AT(made, MESSAGE_SENDER) = Py_NewRef(sender);
    MESSAGE_AT(made, MESSAGE_ID) = id;
    MESSAGE_AT(made, MESSAGE_PARENT) = Py_NewRef(Py_None);
    MESSAGE_AT(made, MESSAGE_ORPHAN) = Py_NewRef(Py_False);
    return made;
}

static PyObject *
messages_next(Messages *self)
{
    PyObject *body, *made;
    if (self->place >= self->count || (self->bodies != NULL && self->place >= PyList_GET_SIZE(self->bodies))) {
        /* a list that somebody shortened has no more */
        messages_end(self);
        return NULL;
    }
    if (self->bodies != NULL) {
        body = Py_NewRef(PyList_GET_ITEM(self->bodies, self->place));
    }
    else {
        size_t size = 0;
        const unsigned char *at = next_body(self->at, (const unsigned char *)self->view.buf + self->view.len, &size);
        if (at == NULL) { /* they were counted; whoever changed them since gets none */
            messages_end(self);
            return NULL;
        }
        body = PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
        self->at = at + size;
    }
    made = body == NULL ? NULL : message_of(body, self->sender, self->first + self->place);
    Py_XDECREF(body);
    self->place++;
    return made;
}

static PyTypeObject MessagesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Messages",
    .tp_doc = "The messages of a frame.",
    .tp_basicsize = sizeof(Messages),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)messages_dealloc,
    .tp_iter = itself,
    .tp_iternext = (iternextfunc)messages_next,
};

static Messages *
messages_new(PyObject *sender, long long first, long long count)
{
    Messages *self = PyObject_New(Messages, &MessagesType);
    if (self != NULL) {
        self->bodies = NULL;
        self->view.obj = NULL;
        self->at = NULL;
        self->sender = Py_NewRef(sender);
        self->first = first;
        self->place = 0;
        self->count = (Py_ssize_t)count;
    }
    return self;
}

/* Taking */

static int
is_plain_frame(Reading *self, PyObject *frame, long long *count)
{ /* whether there is nothing to it but bodies of bytes */
    PyObject *headers;
    long long kind;
    if ((PyObject *)Py_TYPE(frame) != frame_type || self->taken == NULL || !PyDict_CheckExact(self->taken)) {
        return 0;
    }
    headers = FRAME_AT(frame, FRAME_HEADERS);
    return self->state == Py_None && is_number(FRAME_AT(frame, FRAME_COUNT), count)
        && is_number(FRAME_AT(frame, FRAME_KIND), &kind) && kind == self->plain && headers != NULL && PyList_CheckExact(headers)
        && PyList_GET_SIZE(headers) == 0;
}

static int
find_bodies(Messages *self, PyObject *bodies)
{ /* 0: they are not what the frame says, which the long way counts */
    if (bodies == NULL) {
        return 0;
    }
    if (PyList_CheckExact(bodies)) {
        self->bodies = Py_NewRef(bodies);
        return PyList_GET_SIZE(bodies) == self->count;
    }
    if (PyObject_GetBuffer(bodies, &self->view, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        return 0;
    }
    const unsigned char *start = self->view.buf;
    self->at = first_body(start, start + self->view.len, self->count);
    return self->at != NULL;
}

static int
note_taken(Reading *self, PyObject *frame)
{
    PyObject *fields[] = {FRAME_AT(frame, FRAME_SENDER), FRAME_AT(frame, FRAME_GROUP), FRAME_AT(frame, FRAME_TO)};
    PyObject *stream, *taken, *before, *after = NULL;
    long long frames = 0, bytes = 0, size;
    int failed = -1;
    if (!is_number(FRAME_AT(frame, FRAME_SIZE), &size) || self->taken == NULL || !PyDict_CheckExact(self->taken)) {
        PyErr_SetString(PyExc_TypeError, "a frame's size is a whole number, and what was taken is noted in a dict");
        return -1;
    }
    if ((stream = tuple_of(3, fields)) == NULL) {
        return -1;
    }
    taken = Py_NewRef(self->taken);
    if (looked_up(taken, stream, &before) == 0) {
        if (before != NULL && !PyTuple_CheckExact(before)) {
            PyErr_SetString(PyExc_TypeError, "what was taken is noted in pairs");
        }
        else if (before == NULL || PyArg_ParseTuple(before, "LL", &frames, &bytes)) {
            if (bytes < 0 || bytes > LLONG_MAX - size || frames == LLONG_MAX || self->taken_bytes < 0
                || self->taken_bytes > LLONG_MAX - self->frame_bytes - size) {
                PyErr_SetString(PyExc_OverflowError, "more was taken than can be counted");
            }
            else if ((after = Py_BuildValue("(LL)", frames + 1, bytes + size)) != NULL) {
                failed = PyDict_SetItem(taken, stream, after);
            }
        }
        Py_XDECREF(before);
    }
    Py_DECREF(taken);
    Py_DECREF(stream);
    Py_XDECREF(after);
    self->taken_bytes += failed ? 0 : size + self->frame_bytes;
    return failed;
}

static PyObject *
taken_from(Reading *self, PyObject *inbox, PyObject *frame, int alone)
{ /* its message if it has to be alone, else an iterator; NULL without an error: it is otherwise */
    PyObject *sender, *bodies, *made;
    Messages *messages;
    long long count, first;
    if (!is_plain_frame(self, frame, &count) || (alone && count != 1) || !is_number(FRAME_AT(frame, FRAME_FIRST), &first)
        || looked_up(self->people, FRAME_AT(frame, FRAME_SENDER), &sender) < 0 || sender == NULL) {
        return NULL;
    }
    messages = messages_new(sender, first, count);
    Py_DECREF(sender);
    if (messages == NULL) {
        return NULL;
    }
    bodies = Py_XNewRef(FRAME_AT(frame, FRAME_BODIES));
    made = !find_bodies(messages, bodies) ? NULL : alone ? messages_next(messages) : Py_NewRef((PyObject *)messages);
    Py_XDECREF(bodies);
    Py_DECREF(messages);
    if (made != NULL && (note_taken(self, frame) < 0 || called(PyObject_CallMethodNoArgs(inbox, text_popleft)) < 0)) {
        Py_CLEAR(made);
    }
    return made;
}

static PyObject *
take(Reading *self, int alone)
{ /* the inbox and its first frame are held: what they are compared with may run anything */
    PyObject *inbox = self->inbox, *frame, *made = NULL;
    if (inbox == NULL) {
        PyErr_SetString(PyExc_AttributeError, "inbox");
        return NULL;
    }
    Py_INCREF(inbox);
    if (find_frame() == 0 && (frame = PySequence_GetItem(inbox, 0)) != NULL) {
        made = taken_from(self, inbox, frame, alone);
        Py_DECREF(frame);
    }
    Py_DECREF(inbox);
    if (made == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return made;
}

static PyObject *
reading_take_lone(Reading *self, PyObject *Py_UNUSED(none))
{
    return take(self, 1);
}

static PyObject *
reading_take_plain(Reading *self, PyObject *Py_UNUSED(none))
{
    return take(self, 0);
}

static PyObject *
reading_must_report(Reading *self, void *Py_UNUSED(closure))
{
    PyObject *inbox = Py_XNewRef(self->inbox);
    Py_ssize_t waiting = inbox == NULL ? 0 : PyObject_Size(inbox);
    Py_XDECREF(inbox);
    if (waiting < 0) {
        return NULL;
    }
    return PyBool_FromLong(self->taken_bytes >= (waiting > 0 ? self->busy_bytes : self->idle_bytes));
}

static PyMemberDef reading_members[] = {
    {"inbox", T_OBJECT_EX, offsetof(Reading, inbox), 0, NULL},
    {"state", T_OBJECT_EX, offsetof(Reading, state), 0, NULL},
    {"_taken", T_OBJECT_EX, offsetof(Reading, taken), 0, NULL},
    {"_people", T_OBJECT_EX, offsetof(Reading, people), 0, NULL},
    {"_taken_bytes", T_LONGLONG, offsetof(Reading, taken_bytes), 0, NULL},
    {"_plain", T_LONGLONG, offsetof(Reading, plain), 0, NULL},
    {"_frame_bytes", T_LONGLONG, offsetof(Reading, frame_bytes), 0, NULL},
    {"_busy_bytes", T_LONGLONG, offsetof(Reading, busy_bytes), 0, NULL},
    {"_idle_bytes", T_LONGLONG, offsetof(Reading, idle_bytes), 0, NULL},
    {NULL},
};

static PyGetSetDef reading_properties[] = {
    {"must_report", (getter)reading_must_report, NULL, NULL, NULL},
    {NULL},
};

static PyMethodDef reading_methods[] = {
    {"take_lone", (PyCFunction)reading_take_lone, METH_NOARGS, "The message of the next frame, if it is alone."},
    {"take_plain", (PyCFunction)reading_take_plain, METH_NOARGS, "The messages of the next frame, if it is plain."},
    {NULL},
};

static PyTypeObject ReadingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Reading",
    .tp_doc = "What has come to a member for its program to read.",
    .tp_basicsize = sizeof(Reading),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)reading_dealloc,
    .tp_traverse = (traverseproc)reading_traverse,
    .tp_clear = (inquiry)reading_clear,
    .tp_members = reading_members,
    .tp_getset = reading_properties,
    .tp_methods = reading_methods,
};
