/* Durable events on their way: the usual case of what `runtime/durable.py` and `pubsub/durable/batch.py` do with them.
 * Those say what the formats are, and do it where this answers None. */

#define BATCH_MAGIC 0xC1
#define BATCH_VERSION 1
#define BATCH_ONE_TIME 4
#define BATCH_EVEN 8
#define BATCH_EVENTS_MAX (1 << 20)
#define BATCH_BYTES_MAX (3 << 20)

/* As it lies in memory: little-endian machines only, `<BBHIqqqIIHHHH` without gaps. */
struct batch_head {
    uint8_t magic, version;
    uint16_t flags;
    uint32_t events;
    int64_t session, first, sender;
    uint32_t bodies_bytes, extra_bytes;
    uint16_t topic_bytes, name_bytes, kind, unused;
};

static int
little_endian(void)
{
    uint16_t one = 1;
    return *(uint8_t *)&one == 1 && sizeof(struct batch_head) == 48;
}

/* Pairs of one topic and bytes: the topic, the bodies, and the bytes of them all. */
static PyObject *
of_one_topic(PyObject *Py_UNUSED(module), PyObject *pairs)
{
    PyObject *topic = NULL, *bodies;
    Py_ssize_t count, size = 0;
    if (!PyList_CheckExact(pairs) || (count = PyList_GET_SIZE(pairs)) == 0) {
        Py_RETURN_NONE;
    }
    bodies = PyList_New(count);
    if (bodies == NULL) {
        return NULL;
    }
    for (Py_ssize_t place = 0; place < count && place < PyList_GET_SIZE(pairs); place++) { /* as it is now */
        PyObject *pair = PyList_GET_ITEM(pairs, place), *one, *body;
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) {
            break;
        }
        one = PyTuple_GET_ITEM(pair, 0);
        body = PyTuple_GET_ITEM(pair, 1);
        if (!PyBytes_CheckExact(body) || !PyUnicode_CheckExact(one)
            || (topic != NULL && one != topic && PyUnicode_Compare(one, topic) != 0)) {
            break;
        }
        topic = one;
        size += PyBytes_GET_SIZE(body);
        PyList_SET_ITEM(bodies, place, Py_NewRef(body));
        if (place == count - 1) {
            return Py_BuildValue("(NNn)", Py_NewRef(topic), bodies, size);
        }
    }
    Py_DECREF(bodies);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* pack_plain(topic, session, first, sender, kind, time, bodies): a batch without extras, of one time. */
static PyObject *
pack_plain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    struct batch_head head = {.magic = BATCH_MAGIC, .version = BATCH_VERSION, .flags = BATCH_ONE_TIME | BATCH_EVEN};
    const char *topic;
    Py_ssize_t topic_bytes, events, bodies_bytes = 0, each = 0, padding, whole;
    int64_t numbers[5];
    PyObject *bodies, *made;
    char *to;
    int32_t end = 0;
    if (count != 7 || !PyUnicode_CheckExact(args[0]) || !PyList_CheckExact(args[6])) {
        Py_RETURN_NONE;
    }
    for (int place = 0; place < 5; place++) { /* session, first, sender, kind, time */
        if (!PyLong_Check(args[place + 1])) {
            Py_RETURN_NONE;
        }
        numbers[place] = PyLong_AsLongLong(args[place + 1]);
        if (numbers[place] == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            Py_RETURN_NONE;
        }
    }
    topic = PyUnicode_AsUTF8AndSize(args[0], &topic_bytes);
    if (topic == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    bodies = args[6];
    events = PyList_GET_SIZE(bodies);
    for (Py_ssize_t place = 0; place < events; place++) {
        PyObject *body = PyList_GET_ITEM(bodies, place);
        if (!PyBytes_CheckExact(body)) {
            Py_RETURN_NONE;
        }
        if (place > 0 && PyBytes_GET_SIZE(body) != each) {
            head.flags = BATCH_ONE_TIME;
        }
        each = PyBytes_GET_SIZE(body);
        bodies_bytes += each;
    }
    if (each == 0) {
        head.flags = BATCH_ONE_TIME;
    }
    padding = -topic_bytes & 7;
    whole = (Py_ssize_t)sizeof(head) + topic_bytes + padding + 8 + bodies_bytes;
    if (!(head.flags & BATCH_EVEN)) {
        whole += 4 * events + 4;
    }
    if (events == 0 || events > BATCH_EVENTS_MAX || whole > BATCH_BYTES_MAX || topic_bytes > UINT16_MAX || numbers[3] < 0
        || numbers[3] > UINT16_MAX) {
        Py_RETURN_NONE;
    }
    made = PyBytes_FromStringAndSize(NULL, whole);
    if (made == NULL) {
        return NULL;
    }
    head.events = (uint32_t)events;
    head.session = numbers[0];
    head.first = numbers[1];
    head.sender = numbers[2];
    head.kind = (uint16_t)numbers[3];
    head.bodies_bytes = (uint32_t)bodies_bytes;
    head.topic_bytes = (uint16_t)topic_bytes;
    to = PyBytes_AS_STRING(made);
    memcpy(to, &head, sizeof(head));
    to += sizeof(head);
    memcpy(to, topic, (size_t)topic_bytes);
    to += topic_bytes;
    memset(to, 0, (size_t)padding);
    to += padding;
    memcpy(to, &numbers[4], 8);
    to += 8;
    if (!(head.flags & BATCH_EVEN)) {
        memcpy(to, &end, 4);
        to += 4;
        for (Py_ssize_t place = 0; place < events; place++, to += 4) {
            end += (int32_t)PyBytes_GET_SIZE(PyList_GET_ITEM(bodies, place));
            memcpy(to, &end, 4);
        }
    }
    for (Py_ssize_t place = 0; place < events; place++) {
        PyObject *body = PyList_GET_ITEM(bodies, place);
        memcpy(to, PyBytes_AS_STRING(body), (size_t)PyBytes_GET_SIZE(body));
        to += PyBytes_GET_SIZE(body);
    }
    return made;
}

/* Session, first and last sequence, events, topic and time of a batch that was packed as above. */
static PyObject *
outline_plain(PyObject *Py_UNUSED(module), PyObject *command)
{
    struct batch_head head;
    Py_ssize_t size, names, wanted;
    int64_t time;
    const char *from;
    if (!PyBytes_CheckExact(command) || (size = PyBytes_GET_SIZE(command)) < (Py_ssize_t)sizeof(head) + 8) {
        Py_RETURN_NONE;
    }
    from = PyBytes_AS_STRING(command);
    memcpy(&head, from, sizeof(head));
    if (head.magic != BATCH_MAGIC || head.version != BATCH_VERSION || (head.flags & ~BATCH_EVEN) != BATCH_ONE_TIME
        || head.events == 0 || head.events > BATCH_EVENTS_MAX || head.first < 1
        || head.first > INT64_MAX - BATCH_EVENTS_MAX || head.topic_bytes == 0) {
        Py_RETURN_NONE;
    }
    names = head.topic_bytes + head.name_bytes;
    names += -names & 7;
    wanted = (Py_ssize_t)sizeof(head) + names + 8 + head.bodies_bytes + head.extra_bytes;
    if (!(head.flags & BATCH_EVEN)) {
        wanted += 4 * (Py_ssize_t)head.events + 4;
    }
    else if (head.bodies_bytes == 0 || head.bodies_bytes % head.events) {
        Py_RETURN_NONE;
    }
    if (wanted != size) {
        Py_RETURN_NONE;
    }
    memcpy(&time, from + sizeof(head) + names, 8);
    return Py_BuildValue("(LLLIy#L)", (long long)head.session, (long long)head.first,
                         (long long)(head.first + head.events - 1), (unsigned int)head.events, from + sizeof(head),
                         (Py_ssize_t)head.topic_bytes, (long long)time);
}

static PyMethodDef packing[] = {
    {"of_one_topic", of_one_topic, METH_O, "Topic, bodies and size of pairs that are of one topic and bytes."},
    {"pack_plain", (PyCFunction)(void (*)(void))pack_plain, METH_FASTCALL, "A batch of bodies without extras."},
    {"outline_plain", outline_plain, METH_O, "What a state machine wants to know of a batch."},
    {NULL},
};

static int
add_packing(PyObject *made)
{
    return little_endian() ? PyModule_AddFunctions(made, packing) : 0;
}
