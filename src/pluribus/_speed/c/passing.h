/* How stimuli are run, and how frames pass by layers. `passing.py` says what each is for. */

static PyObject *text_group, *text_headers, *text_settle, *text_unsettled;

static int
name_parts(void)
{
    return (text_group = PyUnicode_InternFromString("group")) == NULL
            || (text_headers = PyUnicode_InternFromString("headers")) == NULL
            || (text_settle = PyUnicode_InternFromString("settle")) == NULL
            || (text_unsettled = PyUnicode_InternFromString("unsettled")) == NULL
        ? -1
        : 0;
}

/* Way */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *own;       /* a dict: by type of the last header, who takes it */
    PyObject *concerned; /* a tuple of pairs: groups, and who takes their frames */
    PyObject *after;
} Way;

static PyTypeObject WayType;

static int
way_traverse(Way *self, visitproc visit, void *arg)
{
    Py_VISIT(self->own);
    Py_VISIT(self->concerned);
    Py_VISIT(self->after);
    return 0;
}

static int
way_clear(Way *self)
{
    Py_CLEAR(self->own);
    Py_CLEAR(self->concerned);
    Py_CLEAR(self->after);
    return 0;
}

static void
way_dealloc(Way *self)
{
    PyObject_GC_UnTrack(self);
    way_clear(self);
    PyObject_GC_Del(self);
}

static int
way_taker(Way *self, PyObject *frame, PyObject **taker)
{ /* whose turn it is: a new reference */
    PyObject *headers = PyObject_GetAttr(frame, text_headers), *group;
    Py_ssize_t place;
    int is_in;
    *taker = NULL;
    if (headers == NULL) {
        return -1;
    }
    if (PyList_CheckExact(headers) && PyList_GET_SIZE(headers) > 0) {
        PyObject *last = PyList_GET_ITEM(headers, PyList_GET_SIZE(headers) - 1);
        looked_up(self->own, (PyObject *)Py_TYPE(last), taker);
    }
    Py_DECREF(headers);
    if (*taker != NULL || PyErr_Occurred()) {
        return *taker == NULL ? -1 : 0;
    }
    group = PyObject_GetAttr(frame, text_group);
    if (group == NULL) {
        return -1;
    }
    for (place = 0; place < PyTuple_GET_SIZE(self->concerned); place++) {
        PyObject *pair = PyTuple_GET_ITEM(self->concerned, place);
        is_in = PySequence_Contains(PyTuple_GET_ITEM(pair, 0), group);
        if (is_in != 0) {
            Py_DECREF(group);
            *taker = is_in > 0 ? Py_NewRef(PyTuple_GET_ITEM(pair, 1)) : NULL;
            return is_in > 0 ? 0 : -1;
        }
    }
    Py_DECREF(group);
    *taker = Py_NewRef(self->after);
    return 0;
}

static PyObject *
way_call(PyObject *me, PyObject *const *given, size_t count, PyObject *names)
{
    PyObject *taker, *made;
    if (PyVectorcall_NARGS(count) != 1 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "a way takes a frame");
        return NULL;
    }
    if (((Way *)me)->concerned == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this way was collected");
        return NULL;
    }
    if (way_taker((Way *)me, given[0], &taker) < 0) {
        return NULL;
    }
    made = PyObject_CallOneArg(taker, given[0]);
    Py_DECREF(taker);
    return made;
}

static PyTypeObject WayType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Way",
    .tp_doc = "Passes a frame to whom it concerns.",
    .tp_basicsize = sizeof(Way),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Way, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)way_dealloc,
    .tp_traverse = (traverseproc)way_traverse,
    .tp_clear = (inquiry)way_clear,
};

static PyObject *
way(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *own, *concerned, *after;
    Py_ssize_t place;
    Way *self;
    if (!PyArg_ParseTuple(args, "O!OO", &PyDict_Type, &own, &concerned, &after)) {
        return NULL;
    }
    concerned = PySequence_Tuple(concerned);
    if (concerned == NULL) {
        return NULL;
    }
    for (place = 0; place < PyTuple_GET_SIZE(concerned); place++) {
        PyObject *pair = PyTuple_GET_ITEM(concerned, place);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) {
            Py_DECREF(concerned);
            PyErr_SetString(PyExc_TypeError, "who is concerned is said in pairs: groups, and who takes their frames");
            return NULL;
        }
    }
    self = PyObject_GC_New(Way, &WayType);
    if (self == NULL) {
        Py_DECREF(concerned);
        return NULL;
    }
    self->vectorcall = way_call;
    self->own = Py_NewRef(own);
    self->concerned = concerned;
    self->after = Py_NewRef(after);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Runner */

typedef struct {
    PyObject_HEAD
    PyObject *waiting;  /* a list of calls */
    PyObject *settling; /* a list of whoever settles */
    char running;
    char inside;
} Runner;

static int
runner_traverse(Runner *self, visitproc visit, void *arg)
{
    Py_VISIT(self->waiting);
    Py_VISIT(self->settling);
    return 0;
}

static int
runner_clear(Runner *self)
{
    Py_CLEAR(self->waiting);
    Py_CLEAR(self->settling);
    return 0;
}

static void
runner_dealloc(Runner *self)
{
    PyObject_GC_UnTrack(self);
    runner_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int
has_lists(Runner *self)
{ /* asked again after every call: whoever runs may have put something else there */
    if (self->waiting == NULL || self->settling == NULL || !PyList_CheckExact(self->waiting)
        || !PyList_CheckExact(self->settling)) {
        PyErr_SetString(PyExc_TypeError, "a runner has lists of who waits and of who settles");
        return 0;
    }
    return 1;
}

static int
runner_wait(Runner *self, PyObject *const *given, Py_ssize_t count)
{ /* to be called later */
    static PyObject *partial = NULL;
    PyObject *call;
    int failed;
    if (count == 1) {
        return PyList_Append(self->waiting, given[0]);
    }
    if (imported(&partial, "functools", "partial") == NULL) {
        return -1;
    }
    call = PyObject_Vectorcall(partial, given, (size_t)count, NULL);
    failed = call == NULL || !has_lists(self) ? -1 : PyList_Append(self->waiting, call);
    Py_XDECREF(call);
    return failed;
}

static PyObject *
runner_next(Runner *self)
{ /* what waits first, taken out */
    PyObject *call = Py_NewRef(PyList_GET_ITEM(self->waiting, 0));
    if (PyList_SetSlice(self->waiting, 0, 1, NULL) < 0) {
        Py_CLEAR(call);
    }
    return call;
}

static int
runner_handle(Runner *self, PyObject *const *given, Py_ssize_t count)
{
    PyObject *made = PyObject_Vectorcall(given[0], given + 1, (size_t)count - 1, NULL);
    Py_ssize_t place;
    if (made == NULL) {
        return -1;
    }
    Py_DECREF(made);
    for (;;) {
        if (!has_lists(self)) {
            return -1;
        }
        if (PyList_GET_SIZE(self->waiting) == 0) {
            break;
        }
        PyObject *call = runner_next(self);
        made = call == NULL ? NULL : PyObject_CallNoArgs(call);
        Py_XDECREF(call);
        if (made == NULL) {
            return -1;
        }
        Py_DECREF(made);
    }
    for (place = 0;; place++) {
        if (!has_lists(self)) {
            return -1;
        }
        if (place >= PyList_GET_SIZE(self->settling)) {
            break;
        }
        PyObject *layer = Py_NewRef(PyList_GET_ITEM(self->settling, place));
        PyObject *unsettled = PyObject_GetAttr(layer, text_unsettled);
        int is_so = unsettled == NULL ? -1 : PyObject_IsTrue(unsettled);
        Py_XDECREF(unsettled);
        made = is_so > 0 ? PyObject_CallMethodNoArgs(layer, text_settle) : NULL;
        Py_DECREF(layer);
        if (is_so < 0 || (is_so > 0 && made == NULL)) {
            return -1;
        }
        Py_XDECREF(made);
    }
    return 0;
}

static PyObject *
runner_run(Runner *self, PyObject *const *given, Py_ssize_t count)
{
    PyObject *next = NULL;
    int failed;
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "run takes a stimulus, and what it is given");
        return NULL;
    }
    if (!self->running) {
        Py_RETURN_NONE;
    }
    if (!has_lists(self)) {
        return NULL;
    }
    if (self->inside) {
        if (runner_wait(self, given, count) < 0) {
            return NULL;
        }
        Py_RETURN_NONE;
    }
    do { /* what is asked for while others settle is a stimulus of its own */
        self->inside = 1;
        failed = next == NULL ? runner_handle(self, given, count) : runner_handle(self, &next, 1);
        self->inside = 0;
        Py_CLEAR(next);
        if (failed || !has_lists(self)) {
            return NULL;
        }
        if (self->running && PyList_GET_SIZE(self->waiting) > 0) {
            next = runner_next(self);
            if (next == NULL) {
                return NULL;
            }
        }
    } while (next != NULL);
    Py_RETURN_NONE;
}

static PyMemberDef runner_members[] = {
    {"_running", T_BOOL, offsetof(Runner, running), 0, NULL},
    {"_inside", T_BOOL, offsetof(Runner, inside), 0, NULL},
    {"_waiting", T_OBJECT_EX, offsetof(Runner, waiting), 0, NULL},
    {"_settling", T_OBJECT_EX, offsetof(Runner, settling), 0, NULL},
    {NULL},
};

static PyMethodDef runner_methods[] = {
    {"run", (PyCFunction)(void (*)(void))runner_run, METH_FASTCALL, "Handle one stimulus and settle."},
    {NULL},
};

static PyTypeObject RunnerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Runner",
    .tp_doc = "Runs stimuli: never one inside another, and behind each of them what is to be settled.",
    .tp_basicsize = sizeof(Runner),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)runner_dealloc,
    .tp_traverse = (traverseproc)runner_traverse,
    .tp_clear = (inquiry)runner_clear,
    .tp_members = runner_members,
    .tp_methods = runner_methods,
};
