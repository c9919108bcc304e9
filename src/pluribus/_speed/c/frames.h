/* Where frames have what they have, and small steps that all take who handle them. */

enum frame_slot {
    FRAME_SENDER, FRAME_TO, FRAME_GROUP, FRAME_FIRST, FRAME_COUNT, FRAME_SIZE, FRAME_KIND, FRAME_HEADERS, FRAME_BODIES,
    FRAME_SLOTS,
};

enum message_slot { MESSAGE_BODY, MESSAGE_SENDER, MESSAGE_ID, MESSAGE_PARENT, MESSAGE_ORPHAN, MESSAGE_SLOTS };

static PyObject *frame_type, *message_type, *text_append, *text_popleft;
static Py_ssize_t frame_slots[FRAME_SLOTS], message_slots[MESSAGE_SLOTS];

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))
#define FRAME_AT(frame, slot) SLOT(frame, frame_slots[slot])
#define MESSAGE_AT(message, slot) SLOT(message, message_slots[slot])

static int
find_slot(PyObject *type, const char *name, Py_ssize_t *offset)
{
    PyObject *found = PyObject_GetAttrString(type, name);
    if (found == NULL) {
        return -1;
    }
    if (!Py_IS_TYPE(found, &PyMemberDescr_Type) || ((PyMemberDescrObject *)found)->d_member->type != T_OBJECT_EX) {
        PyErr_Format(PyExc_TypeError, "%R has no slot %s", type, name);
        Py_DECREF(found);
        return -1;
    }
    *offset = ((PyMemberDescrObject *)found)->d_member->offset;
    Py_DECREF(found);
    return 0;
}

static int
find_frame(void)
{ /* once, and not before somebody needs it: their module may import this one */
    static const char *const names[FRAME_SLOTS] = {
        "sender", "to", "group", "first", "count", "size", "kind", "headers", "bodies"};
    static const char *const parts[MESSAGE_SLOTS] = {"body", "sender", "id", "parent", "orphan"};
    if (frame_type != NULL) {
        return 0;
    }
    if (imported(&message_type, "pluribus.core.frame", "Message") == NULL
        || (text_append = PyUnicode_InternFromString("append")) == NULL
        || (text_popleft = PyUnicode_InternFromString("popleft")) == NULL
        || imported(&frame_type, "pluribus.core.frame", "Frame") == NULL) {
        return -1;
    }
    for (int place = 0; place < FRAME_SLOTS; place++) {
        if (find_slot(frame_type, names[place], &frame_slots[place]) < 0) {
            Py_CLEAR(frame_type);
            return -1;
        }
    }
    for (int place = 0; place < MESSAGE_SLOTS; place++) {
        if (find_slot(message_type, parts[place], &message_slots[place]) < 0) {
            Py_CLEAR(frame_type);
            return -1;
        }
    }
    return 0;
}

static int
is_number(PyObject *object, long long *number)
{ /* of those that protocols count with; any other is unusual */
    int overflow;
    if (object == NULL || !PyLong_Check(object)) {
        return 0;
    }
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && *number >= 0;
}

static int
is_whole_frame(PyObject *frame)
{ /* whether none of its fields was deleted */
    for (int place = 0; place < FRAME_SLOTS; place++) {
        if (FRAME_AT(frame, place) == NULL) {
            return 0;
        }
    }
    return 1;
}

static int
called(PyObject *made)
{ /* for what it did */
    Py_XDECREF(made);
    return made == NULL ? -1 : 0;
}
