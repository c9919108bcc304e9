/* An async iterator over the elements of runs that another async iterator brings. */

/* `__anext__` gives the iterator itself, to make nothing for an element; who asks again before that was awaited gets a
 * Turn. So it is known who waits, and nobody else goes on in their place. */

typedef struct {
    PyObject_HEAD
    PyObject *runs;    /* an async iterator of iterators */
    PyObject *run;     /* the one that is read now, or NULL */
    PyObject *waiting; /* what brings the next one, while it is awaited */
    void *by;          /* who awaits that: the iterator, or a turn; only compared */
    char given;        /* whether the iterator itself is to be awaited */
    char running;
    char over;
} Flatten;

typedef struct {
    PyObject_HEAD
    Flatten *of;
    char over;
} Turn;

static PyTypeObject TurnType;

static PyObject *
flatten_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *runs;
    Flatten *self;
    if (named != NULL && PyDict_GET_SIZE(named) > 0) {
        PyErr_SetString(PyExc_TypeError, "flatten() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:flatten", &runs)) {
        return NULL;
    }
    if (Py_TYPE(runs)->tp_as_async == NULL || Py_TYPE(runs)->tp_as_async->am_anext == NULL) {
        PyErr_Format(PyExc_TypeError, "flatten() needs an async iterator, not %.100s", Py_TYPE(runs)->tp_name);
        return NULL;
    }
    self = (Flatten *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->runs = Py_NewRef(runs);
    }
    return (PyObject *)self;
}

static int
flatten_traverse(Flatten *self, visitproc visit, void *arg)
{
    Py_VISIT(self->runs);
    Py_VISIT(self->run);
    Py_VISIT(self->waiting);
    return 0;
}

static int
flatten_clear(Flatten *self)
{
    self->over = 1;
    Py_CLEAR(self->runs);
    Py_CLEAR(self->run);
    Py_CLEAR(self->waiting);
    return 0;
}

static void
flatten_dealloc(Flatten *self)
{
    PyObject_GC_UnTrack(self);
    flatten_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
flatten_next(PyObject *me)
{
    Flatten *self = (Flatten *)me;
    Turn *turn;
    if (!self->given) {
        self->given = 1;
        return Py_NewRef(me);
    }
    turn = (Turn *)TurnType.tp_alloc(&TurnType, 0);
    if (turn != NULL) {
        turn->of = (Flatten *)Py_NewRef(me);
    }
    return (PyObject *)turn;
}

static int
flatten_await(Flatten *self)
{ /* begins to wait for the next run */
    PyTypeObject *type = Py_TYPE(self->runs);
    PyObject *awaitable = type->tp_as_async->am_anext(self->runs);
    PyTypeObject *kind;
    if (awaitable == NULL) {
        return -1;
    }
    kind = Py_TYPE(awaitable);
    if (kind->tp_as_async != NULL && kind->tp_as_async->am_await != NULL) {
        self->waiting = kind->tp_as_async->am_await(awaitable);
        Py_DECREF(awaitable);
    }
    else {
        self->waiting = awaitable;
    }
    return self->waiting == NULL ? -1 : 0;
}

static int
flatten_read(Flatten *self, PyObject *run)
{ /* reads on in a run; takes the reference */
    PyObject *iterator = PyObject_GetIter(run);
    Py_DECREF(run);
    Py_XSETREF(self->run, iterator);
    return iterator == NULL ? -1 : 0;
}

static PySendResult
failed(void)
{ /* with the error that is set; as of a generator, it is never one that means the end, or a result */
    PyObject *type, *error, *trace, *cause;
    if (PyErr_ExceptionMatches(PyExc_StopAsyncIteration) || PyErr_ExceptionMatches(PyExc_StopIteration)) {
        PyErr_Fetch(&type, &cause, &trace);
        PyErr_NormalizeException(&type, &cause, &trace);
        if (trace != NULL) {
            PyException_SetTraceback(cause, trace);
        }
        PyErr_Format(PyExc_RuntimeError, "async generator raised %.100s", ((PyTypeObject *)type)->tp_name);
        Py_XDECREF(type);
        Py_XDECREF(trace);
        PyErr_Fetch(&type, &error, &trace);
        PyErr_NormalizeException(&type, &error, &trace);
        PyException_SetCause(error, Py_NewRef(cause));
        PyException_SetContext(error, cause);
        PyErr_Restore(type, error, trace);
    }
    return PYGEN_ERROR;
}

static PySendResult
flatten_go_on(Flatten *self, PyObject *value, PyObject **result)
{
    for (;;) {
        PySendResult how;
        PyObject *brought;
        if (self->waiting == NULL) {
            if (self->over) {
                PyErr_SetNone(PyExc_StopAsyncIteration);
                return PYGEN_ERROR;
            }
            if (self->run != NULL) {
                *result = Py_TYPE(self->run)->tp_iternext(self->run);
                if (*result != NULL) {
                    return PYGEN_RETURN;
                }
                if (PyErr_Occurred()) {
                    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
                        return failed();
                    }
                    PyErr_Clear();
                }
                Py_CLEAR(self->run);
            }
            if (flatten_await(self) < 0) {
                return PYGEN_ERROR;
            }
            value = Py_None;
        }
        how = PyIter_Send(self->waiting, value, &brought);
        if (how == PYGEN_NEXT) {
            *result = brought;
            return PYGEN_NEXT;
        }
        Py_CLEAR(self->waiting);
        if (how == PYGEN_ERROR || flatten_read(self, brought) < 0) {
            return PYGEN_ERROR;
        }
    }
}

static int
flatten_begin(Flatten *self, void *who)
{ /* nothing else may touch it until `flatten_end` */
    if (self->running || (self->waiting != NULL && self->by != who)) {
        PyErr_SetString(PyExc_RuntimeError, "anext(): another task awaits the next element of this iterator");
        return -1;
    }
    self->running = 1;
    self->by = who;
    return 0;
}

static void
flatten_end(Flatten *self, PySendResult how)
{
    self->running = 0;
    if (how == PYGEN_ERROR) { /* a generator that raised is over */
        self->over = 1;
        Py_CLEAR(self->run);
    }
}

static PySendResult
flatten_step(Flatten *self, void *who, PyObject *value, PyObject **result)
{
    PySendResult how;
    *result = NULL;
    if (flatten_begin(self, who) < 0) {
        return PYGEN_ERROR;
    }
    how = flatten_go_on(self, value, result);
    flatten_end(self, how);
    return how;
}

static int
reused(void)
{
    PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited __anext__()");
    return -1;
}

static PySendResult
flatten_send(PyObject *me, PyObject *value, PyObject **result)
{
    Flatten *self = (Flatten *)me;
    PySendResult how;
    if (!self->given) {
        *result = NULL;
        return reused();
    }
    how = flatten_step(self, self, value, result);
    self->given = how == PYGEN_NEXT;
    return how;
}

static PySendResult
turn_send(PyObject *me, PyObject *value, PyObject **result)
{
    Turn *self = (Turn *)me;
    PySendResult how;
    if (self->over) {
        *result = NULL;
        return reused();
    }
    how = flatten_step(self->of, self, value, result);
    self->over = how != PYGEN_NEXT;
    return how;
}

static PyObject *
raised(PyObject *args)
{ /* what `throw` is given, raised here */
    PyObject *type, *error = NULL, *trace = NULL;
    if (!PyArg_UnpackTuple(args, "throw", 1, 3, &type, &error, &trace)) {
        return NULL;
    }
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    }
    else if (PyExceptionClass_Check(type)) {
        PyErr_SetObject(type, error == Py_None ? NULL : error);
    }
    else {
        PyErr_SetString(PyExc_TypeError, "throw() needs an exception");
    }
    return NULL;
}

static PyObject *
thrown_into(PyObject *waiting, PyObject *args)
{
    PyObject *found, *throw = PyObject_GetAttrString(waiting, "throw");
    if (throw == NULL) {
        PyErr_Clear();
        return raised(args);
    }
    found = PyObject_CallObject(throw, args);
    Py_DECREF(throw);
    return found;
}

static PySendResult
flatten_throw_on(Flatten *self, PyObject *args, PyObject **result)
{
    PyObject *found;
    if (self->waiting == NULL) {
        raised(args);
        return self->over ? PYGEN_ERROR : failed();
    }
    *result = thrown_into(self->waiting, args);
    if (*result != NULL) {
        return PYGEN_NEXT; /* it waits for something else now */
    }
    Py_CLEAR(self->waiting);
    found = taken_result();
    if (found == NULL || flatten_read(self, found) < 0) {
        return PYGEN_ERROR;
    }
    return flatten_go_on(self, Py_None, result); /* it was caught, and the next run is there */
}

static PySendResult
flatten_throw_step(Flatten *self, void *who, PyObject *args, PyObject **result)
{
    PySendResult how;
    *result = NULL;
    if (flatten_begin(self, who) < 0) {
        return PYGEN_ERROR;
    }
    how = flatten_throw_on(self, args, result);
    flatten_end(self, how);
    return how;
}

static PyObject *
flatten_throw(Flatten *self, PyObject *args)
{
    PyObject *result;
    PySendResult how;
    if (!self->given) {
        reused();
        return NULL;
    }
    how = flatten_throw_step(self, self, args, &result);
    self->given = how == PYGEN_NEXT;
    return as_iteration(how, result);
}

static PyObject *
turn_throw(Turn *self, PyObject *args)
{
    PyObject *result;
    PySendResult how;
    if (self->over) {
        reused();
        return NULL;
    }
    how = flatten_throw_step(self->of, self, args, &result);
    self->over = how != PYGEN_NEXT;
    return as_iteration(how, result);
}

static PyObject *
closed(PyObject *waiting)
{ /* takes the reference */
    PyObject *found;
    if (!PyObject_HasAttrString(waiting, "close")) {
        Py_DECREF(waiting);
        Py_RETURN_NONE;
    }
    found = PyObject_CallMethod(waiting, "close", NULL);
    Py_DECREF(waiting);
    return found;
}

static PyObject *
flatten_stop(Flatten *self, void *who)
{
    PyObject *waiting = self->waiting;
    if (waiting == NULL || self->running || self->by != who) {
        Py_RETURN_NONE;
    }
    self->waiting = NULL;
    return closed(waiting);
}

static PyObject *
flatten_close(Flatten *self, PyObject *Py_UNUSED(nothing))
{
    self->given = 0;
    return flatten_stop(self, self);
}

static PyObject *
turn_close(Turn *self, PyObject *Py_UNUSED(nothing))
{
    self->over = 1;
    return flatten_stop(self->of, self);
}

static PyObject *
flatten_aclose(Flatten *self, PyObject *Py_UNUSED(nothing))
{
    if (!self->running) {
        Py_CLEAR(self->run);
    }
    if (self->runs == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "aclose(): this iterator was collected");
        return NULL;
    }
    return PyObject_CallMethod(self->runs, "aclose", NULL);
}

static PyMethodDef flatten_methods[] = {
    {"send", sent, METH_O, NULL},
    {"throw", (PyCFunction)flatten_throw, METH_VARARGS, NULL},
    {"close", (PyCFunction)flatten_close, METH_NOARGS, NULL},
    {"aclose", (PyCFunction)flatten_aclose, METH_NOARGS, "End it, and what brings the runs."},
    {NULL},
};

static PyAsyncMethods flatten_async = {
    .am_await = itself,
    .am_aiter = itself,
    .am_anext = flatten_next,
    .am_send = flatten_send,
};

static PyTypeObject FlattenType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.flatten",
    .tp_doc = "The elements of the runs that an async iterator brings, one after another.",
    .tp_basicsize = sizeof(Flatten),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = flatten_new,
    .tp_dealloc = (destructor)flatten_dealloc,
    .tp_traverse = (traverseproc)flatten_traverse,
    .tp_clear = (inquiry)flatten_clear,
    .tp_as_async = &flatten_async,
    .tp_iter = itself,
    .tp_iternext = next_sent,
    .tp_methods = flatten_methods,
};

static int
turn_traverse(Turn *self, visitproc visit, void *arg)
{ /* no tp_clear: it never changes, so every cycle has something that does */
    Py_VISIT(self->of);
    return 0;
}

static void
turn_dealloc(Turn *self)
{
    PyObject_GC_UnTrack(self);
    if (self->of->by == self) { /* another may be made at this address */
        self->of->by = NULL;
    }
    Py_DECREF(self->of);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef turn_methods[] = {
    {"send", sent, METH_O, NULL},
    {"throw", (PyCFunction)turn_throw, METH_VARARGS, NULL},
    {"close", (PyCFunction)turn_close, METH_NOARGS, NULL},
    {NULL},
};

static PyAsyncMethods turn_async = {.am_await = itself, .am_send = turn_send};

static PyTypeObject TurnType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Turn",
    .tp_basicsize = sizeof(Turn),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)turn_dealloc,
    .tp_traverse = (traverseproc)turn_traverse,
    .tp_as_async = &turn_async,
    .tp_iter = itself,
    .tp_iternext = next_sent,
    .tp_methods = turn_methods,
};
