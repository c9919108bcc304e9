/* 3.11 only, to be deleted with it.
 *
 * Where bodies gather, and which of them may be appended without asking anybody; and an object that has such a batch. */

typedef struct {
    PyObject_HEAD
    PyObject *ids;
    PyObject *pending;
    PyObject *type;
    PyObject *solo;   /* the one topic of all, or None: then each has its place */
    PyObject *places; /* of topics, a number below 256 */
    PyObject *of;     /* by body, the place of its topic: a bytearray */
    Py_ssize_t alike;
} OpenBatch;

static int
batch_traverse(OpenBatch *self, visitproc visit, void *arg)
{
    Py_VISIT(self->ids);
    Py_VISIT(self->pending);
    Py_VISIT(self->type);
    Py_VISIT(self->solo);
    Py_VISIT(self->places);
    Py_VISIT(self->of);
    return 0;
}

static int
batch_clear(OpenBatch *self)
{
    Py_CLEAR(self->ids);
    Py_CLEAR(self->pending);
    Py_CLEAR(self->type);
    Py_CLEAR(self->solo);
    Py_CLEAR(self->places);
    Py_CLEAR(self->of);
    return 0;
}

static void
batch_dealloc(OpenBatch *self)
{
    PyObject_GC_UnTrack(self);
    batch_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef batch_members[] = {
    {"ids", T_OBJECT_EX, offsetof(OpenBatch, ids), 0, NULL},
    {"pending", T_OBJECT_EX, offsetof(OpenBatch, pending), 0, NULL},
    {"type", T_OBJECT_EX, offsetof(OpenBatch, type), 0, NULL},
    {"solo", T_OBJECT_EX, offsetof(OpenBatch, solo), 0, NULL},
    {"places", T_OBJECT_EX, offsetof(OpenBatch, places), 0, NULL},
    {"of", T_OBJECT_EX, offsetof(OpenBatch, of), 0, NULL},
    {"alike", T_PYSSIZET, offsetof(OpenBatch, alike), 0, NULL},
    {NULL},
};

static PyTypeObject OpenBatchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.OpenBatch",
    .tp_doc = "What a sender in a hurry may append to by itself.",
    .tp_basicsize = sizeof(OpenBatch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)batch_dealloc,
    .tp_traverse = (traverseproc)batch_traverse,
    .tp_clear = (inquiry)batch_clear,
    .tp_members = batch_members,
};

typedef struct {
    PyObject_HEAD
    PyObject *open;
    PyObject *alone; /* sends a body at once if that may be, and returns its identity; else None */
} End;

static int
end_traverse(End *self, visitproc visit, void *arg)
{
    Py_VISIT(self->open);
    Py_VISIT(self->alone);
    return 0;
}

static int
end_clear(End *self)
{
    Py_CLEAR(self->open);
    Py_CLEAR(self->alone);
    return 0;
}

static void
end_dealloc(End *self)
{
    PyObject_GC_UnTrack(self);
    end_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef end_members[] = {
    {"_open", T_OBJECT_EX, offsetof(End, open), 0, NULL},
    {"_alone", T_OBJECT_EX, offsetof(End, alone), 0, NULL},
    {NULL},
};

static PyTypeObject EndType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.End",
    .tp_doc = "Whatever sends through an open batch.",
    .tp_basicsize = sizeof(End),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)end_dealloc,
    .tp_traverse = (traverseproc)end_traverse,
    .tp_clear = (inquiry)end_clear,
    .tp_members = end_members,
};
