/* The straight way: what all layers of the usual stack do with the usual frame. `runtime/group/straight.py` says when it may be
 * gone. Where anything is unusual, nothing happens here and the layers have the frame; what may fail is made before
 * anything is changed. */

#include "straight_parts.h"
#include "straight_up.h"
#include "straight_down.h"

static int
straight_traverse(Straight *self, visitproc visit, void *arg)
{
    for (int place = 0; place < PARTS; place++) {
        Py_VISIT(self->parts[place]);
    }
    return 0;
}

static int
straight_clear(Straight *self)
{
    for (int place = 0; place < PARTS; place++) {
        Py_CLEAR(self->parts[place]);
    }
    return 0;
}

static void
straight_dealloc(Straight *self)
{
    PyObject_GC_UnTrack(self);
    straight_clear(self);
    PyObject_GC_Del(self);
}

static int
find_parts(Straight *self, PyObject *parts)
{
    for (int place = 0; place < PARTS; place++) {
        PyObject *part = PyDict_GetItemString(parts, part_names[place]);
        if (part == NULL) {
            PyErr_Format(PyExc_TypeError, "the straight way needs %s", part_names[place]);
            return -1;
        }
        self->parts[place] = Py_NewRef(part);
    }
    static const enum part dicts[] = {PEERS, STREAMS_IN, STREAMS_OUT, STAMPS, CLOSING, CHANNELS};
    for (size_t place = 0; place < sizeof(dicts) / sizeof(*dicts); place++) {
        if (!PyDict_CheckExact(self->parts[dicts[place]])) {
            PyErr_Format(PyExc_TypeError, "%s is to be a dict", part_names[dicts[place]]);
            return -1;
        }
    }
    if (!PyBytes_CheckExact(self->parts[PREFIX]) || !PyTuple_CheckExact(self->parts[OTHERS_UP])
        || !PyTuple_CheckExact(self->parts[OTHERS_DOWN]) || !is_number(self->parts[ME], &self->me)
        || !is_number(self->parts[CHARGE], &self->charge) || !is_number(self->parts[BATCH], &self->batch)
        || !is_number(self->parts[LONE], &self->lone) || !PyFloat_CheckExact(self->parts[PAUSE])) {
        PyErr_SetString(PyExc_TypeError, "the straight way needs a prefix of bytes, tuples of others, and whole numbers");
        return -1;
    }
    static const enum part types[] = {DATA, INCOMING, OUTGOING, OPEN, PEER, CHANNEL};
    for (size_t place = 0; place < sizeof(types) / sizeof(*types); place++) {
        if (!PyType_Check(self->parts[types[place]])) {
            PyErr_Format(PyExc_TypeError, "%s is to be a type", part_names[types[place]]);
            return -1;
        }
    }
    if (!PyTuple_CheckExact(self->parts[SAMPLES])) {
        PyErr_SetString(PyExc_TypeError, "samples are to be a tuple: an object of each type");
        return -1;
    }
    self->pause = PyFloat_AS_DOUBLE(self->parts[PAUSE]);
    return 0;
}

static int
find_slots(Straight *self)
{ /* where the objects of these types have what they have */
    for (int place = 0; place < SLOTS; place++) {
        PyObject *part = self->parts[slot_names[place].type], *type = PyType_Check(part) ? part : (PyObject *)Py_TYPE(part);
        if (find_slot(type, slot_names[place].name, &self->slots[place]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
check_slots(Straight *self)
{ /* whether the fields of these layers, and of an object of each type, are of the types that they are read as */
    PyObject *samples = self->parts[SAMPLES];
    for (int place = 0; place < SLOTS; place++) {
        PyObject *part = self->parts[slot_names[place].type], *sample = PyType_Check(part) ? NULL : part, *found;
        for (Py_ssize_t number = 0; sample == NULL && number < PyTuple_GET_SIZE(samples); number++) {
            if ((PyObject *)Py_TYPE(PyTuple_GET_ITEM(samples, number)) == part) {
                sample = PyTuple_GET_ITEM(samples, number);
            }
        }
        if (sample == NULL) {
            PyErr_Format(PyExc_TypeError, "the straight way needs a sample of %R", part);
            return -1;
        }
        if ((found = held(self, sample, place)) == NULL) {
            return -1;
        }
        Py_DECREF(found);
    }
    return 0;
}

static PyObject *
straight_new(PyTypeObject *type, PyObject *args, PyObject *parts)
{
    Straight *self;
    if (PyTuple_GET_SIZE(args) != 0 || parts == NULL) {
        PyErr_SetString(PyExc_TypeError, "the straight way is given its parts by name");
        return NULL;
    }
    self = PyObject_GC_New(Straight, type);
    if (self == NULL) {
        return NULL;
    }
    memset(self->parts, 0, sizeof(self->parts));
    self->received = self->sent = 0;
    PyObject_GC_Track(self);
    if (find_frame() < 0 || find_parts(self, parts) < 0 || find_slots(self) < 0 || check_slots(self) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyMemberDef straight_members[] = {
    {"received", T_LONGLONG, offsetof(Straight, received), READONLY, "Frames that went this way."},
    {"sent", T_LONGLONG, offsetof(Straight, sent), READONLY, "Frames that went this way."},
    {NULL},
};

static PyMethodDef straight_methods[] = {
    {"receive", (PyCFunction)straight_receive, METH_O, "What the transport does with datagrams."},
    {"send", (PyCFunction)(void (*)(void))straight_send, METH_FASTCALL, "A message that goes alone, to all."},
    {"send_alone", (PyCFunction)(void (*)(void))straight_send_alone, METH_FASTCALL, "The identity of what was sent at once."},
    {NULL},
};

static PyTypeObject StraightType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Straight",
    .tp_doc = "What all layers of the usual stack do with the usual frame, at one go.",
    .tp_basicsize = sizeof(Straight),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = straight_new,
    .tp_dealloc = (destructor)straight_dealloc,
    .tp_traverse = (traverseproc)straight_traverse,
    .tp_clear = (inquiry)straight_clear,
    .tp_members = straight_members,
    .tp_methods = straight_methods,
};

static int
add_fields(PyObject *made)
{ /* FIELDS: by part, the names of the fields that are read as those of a structure */
    PyObject *fields = PyDict_New();
    int failed = fields == NULL;
    for (int place = 0; !failed && place < SLOTS; place++) {
        PyObject *part = PyUnicode_FromString(part_names[slot_names[place].type]), *names, *name;
        names = part == NULL ? NULL : PyObject_CallMethod(fields, "setdefault", "O[]", part);
        name = PyUnicode_FromString(slot_names[place].name);
        failed = names == NULL || name == NULL || PyList_Append(names, name) < 0;
        Py_XDECREF(part);
        Py_XDECREF(names);
        Py_XDECREF(name);
    }
    failed = failed || PyModule_AddObjectRef(made, "FIELDS", fields) < 0;
    Py_XDECREF(fields);
    return failed ? -1 : 0;
}
