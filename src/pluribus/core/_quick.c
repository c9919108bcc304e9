/* The two ends of a stream, where Python runs a message at a time, in C. `ends.py` has the same in Python, says what each
 * is for, and is used where this was not compiled.
 *
 * flatten     an async iterator over the elements of runs that another async iterator brings
 * OpenBatch   where bodies gather, and which of them may be appended without asking anybody
 * End         an object that has one, `_open`
 * sends, publishes   methods of an End, coroutine functions with a shorter way: if the batch takes the body, it is
 *             appended; if not, the coroutine runs as if nothing had been tried. Nothing happens before it is awaited.
 *
 * An awaitable here answers through `am_send`, so no exception is made to bring a result. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

/* --- awaitables ------------------------------------------------------------------------------------------------ */

static void
raise_result(PyObject *value)
{ /* StopIteration(value), also for tuples and exceptions; takes the reference */
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    Py_DECREF(value);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
}

static PyObject *
taken_result(void)
{ /* the value of the StopIteration that is set, or NULL with the error as it was */
    PyObject *type, *error, *trace, *value;
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
        return NULL;
    }
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    value = Py_NewRef(((PyStopIterationObject *)error)->value);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return value;
}

static PyObject *
as_iteration(PySendResult how, PyObject *value)
{
    if (how == PYGEN_RETURN) {
        raise_result(value);
        return NULL;
    }
    return how == PYGEN_NEXT ? value : NULL;
}

static PyObject *
itself(PyObject *self)
{
    return Py_NewRef(self);
}

/* --- flatten --------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *runs;    /* an async iterator of iterators */
    PyObject *run;     /* the one that is read now, or NULL */
    PyObject *waiting; /* what brings the next one, while it is awaited */
} Flatten;

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
flatten_next(PyObject *self)
{
    if (((Flatten *)self)->waiting != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "anext(): another task awaits the next element of this iterator");
        return NULL;
    }
    return Py_NewRef(self);
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
flatten_send(PyObject *me, PyObject *value, PyObject **result)
{
    Flatten *self = (Flatten *)me;
    for (;;) {
        PySendResult how;
        PyObject *brought;
        if (self->waiting == NULL) {
            if (self->run != NULL) {
                PyObject *run = Py_NewRef(self->run); /* it may run code that comes back here */
                *result = Py_TYPE(run)->tp_iternext(run);
                Py_DECREF(run);
                if (*result != NULL) {
                    return PYGEN_RETURN;
                }
                if (PyErr_Occurred()) {
                    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
                        return PYGEN_ERROR;
                    }
                    PyErr_Clear();
                }
                Py_CLEAR(self->run);
            }
            if (self->runs == NULL || flatten_await(self) < 0) {
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
            *result = NULL;
            return PYGEN_ERROR;
        }
    }
}

static PyObject *
flatten_iternext(PyObject *self)
{
    PyObject *result = NULL;
    PySendResult how = flatten_send(self, Py_None, &result);
    return as_iteration(how, result);
}

static PyObject *
flatten_send_method(PyObject *self, PyObject *value)
{
    PyObject *result = NULL;
    PySendResult how = flatten_send(self, value, &result);
    return as_iteration(how, result);
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

static PyObject *
flatten_throw(Flatten *self, PyObject *args)
{
    PyObject *found, *waiting = self->waiting;
    if (waiting == NULL) {
        return raised(args);
    }
    Py_INCREF(waiting);
    found = thrown_into(waiting, args);
    Py_DECREF(waiting);
    if (found != NULL) {
        return found; /* it waits for something else now */
    }
    Py_CLEAR(self->waiting);
    found = taken_result();
    if (found == NULL || flatten_read(self, found) < 0) {
        return NULL;
    }
    return flatten_iternext((PyObject *)self); /* it was caught, and the next run is there */
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
flatten_close(Flatten *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *waiting = self->waiting;
    self->waiting = NULL;
    if (waiting == NULL) {
        Py_RETURN_NONE;
    }
    return closed(waiting);
}

static PyObject *
flatten_aclose(Flatten *self, PyObject *Py_UNUSED(nothing))
{
    Py_CLEAR(self->run);
    return PyObject_CallMethod(self->runs, "aclose", NULL);
}

static PyMethodDef flatten_methods[] = {
    {"send", flatten_send_method, METH_O, NULL},
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
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus.core._quick.flatten",
    .tp_doc = "The elements of the runs that an async iterator brings, one after another.",
    .tp_basicsize = sizeof(Flatten),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = flatten_new,
    .tp_dealloc = (destructor)flatten_dealloc,
    .tp_traverse = (traverseproc)flatten_traverse,
    .tp_clear = (inquiry)flatten_clear,
    .tp_as_async = &flatten_async,
    .tp_iter = itself,
    .tp_iternext = flatten_iternext,
    .tp_methods = flatten_methods,
};

/* --- an open batch, and who has one ------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    PyObject *ids;
    PyObject *pending;
    PyObject *type;
    PyObject *solo;
    Py_ssize_t alike;
} OpenBatch;

static int
batch_traverse(OpenBatch *self, visitproc visit, void *arg)
{
    Py_VISIT(self->ids);
    Py_VISIT(self->pending);
    Py_VISIT(self->type);
    Py_VISIT(self->solo);
    return 0;
}

static int
batch_clear(OpenBatch *self)
{
    Py_CLEAR(self->ids);
    Py_CLEAR(self->pending);
    Py_CLEAR(self->type);
    Py_CLEAR(self->solo);
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
    {"alike", T_PYSSIZET, offsetof(OpenBatch, alike), 0, NULL},
    {NULL},
};

static PyTypeObject OpenBatchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus.core._quick.OpenBatch",
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
} End;

static int
end_traverse(End *self, visitproc visit, void *arg)
{
    Py_VISIT(self->open);
    return 0;
}

static int
end_clear(End *self)
{
    Py_CLEAR(self->open);
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
    {NULL},
};

static PyTypeObject EndType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus.core._quick.End",
    .tp_doc = "Whatever sends through an open batch.",
    .tp_basicsize = sizeof(End),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)end_dealloc,
    .tp_traverse = (traverseproc)end_traverse,
    .tp_clear = (inquiry)end_clear,
    .tp_members = end_members,
};

/* --- a call that may be over at once ----------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *function; /* the method's coroutine function */
    PyObject *encode;   /* bodies to bytes, or NULL */
    vectorcallfunc vectorcall;
    int topics;         /* whether a topic comes before the body */
} Method;

typedef struct {
    PyObject_HEAD
    Method *method;
    PyObject *end;
    PyObject *topic; /* or NULL */
    PyObject *body;
    PyObject *rest;  /* the coroutine, when the short way was none */
    enum { NEW, RUNNING, OVER } state;
} Call;

static PyTypeObject CallType, MethodType;

#define SPARE_MAX 8
static Call *spare[SPARE_MAX];
static int spares = 0;

static int
call_clear(Call *self)
{
    Py_CLEAR(self->method);
    Py_CLEAR(self->end);
    Py_CLEAR(self->topic);
    Py_CLEAR(self->body);
    Py_CLEAR(self->rest);
    return 0;
}

static int
call_traverse(Call *self, visitproc visit, void *arg)
{
    Py_VISIT(self->method);
    Py_VISIT(self->end);
    Py_VISIT(self->topic);
    Py_VISIT(self->body);
    Py_VISIT(self->rest);
    return 0;
}

static void
call_finalize(PyObject *me)
{ /* as a coroutine would */
    Call *self = (Call *)me;
    PyObject *type, *error, *trace, *name;
    if (self->state != NEW) {
        return;
    }
    self->state = OVER;
    PyErr_Fetch(&type, &error, &trace);
    name = PyObject_GetAttrString(self->method->function, "__qualname__");
    if (name == NULL || PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine '%U' was never awaited", name) < 0) {
        PyErr_WriteUnraisable(me);
    }
    Py_XDECREF(name);
    PyErr_Restore(type, error, trace);
}

static void
call_dealloc(Call *self)
{
    PyObject_GC_UnTrack(self);
    if (self->state == NEW && PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0) {
        return;
    }
    call_clear(self);
    if (spares < SPARE_MAX) {
        spare[spares++] = self;
    }
    else {
        PyObject_GC_Del(self);
    }
}

static PyObject *
call_new(Method *method, PyObject *end, PyObject *topic, PyObject *body)
{ /* not tracked while it can be in no cycle of its own making: until there is a coroutine */
    Call *self;
    if (spares > 0) {
        self = spare[--spares];
        _Py_NewReference((PyObject *)self);
    }
    else {
        self = PyObject_GC_New(Call, &CallType);
        if (self == NULL) {
            return NULL;
        }
    }
    self->method = (Method *)Py_NewRef((PyObject *)method);
    self->end = Py_NewRef(end);
    self->topic = Py_XNewRef(topic);
    self->body = Py_NewRef(body);
    self->rest = NULL;
    self->state = NEW;
    return (PyObject *)self;
}

static int
same_text(PyObject *a, PyObject *b)
{
    return a == b || (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0);
}

static int
may_take(OpenBatch *batch, PyObject *topic, PyObject *body)
{
    if (batch == NULL || (PyObject *)Py_TYPE(body) != batch->type || batch->ids == NULL || batch->pending == NULL
        || !PyList_CheckExact(batch->pending)) {
        return 0;
    }
    return topic == NULL || (batch->solo != NULL && batch->solo != Py_None && same_text(batch->solo, topic));
}

static PyObject *
appended(Method *method, PyObject *end, PyObject *topic, PyObject *body)
{ /* the body's identity; NULL without an error: the batch does not take it */
    OpenBatch *batch = (OpenBatch *)((End *)end)->open;
    PyObject *encoded, *id = NULL;
    if (!may_take(batch, topic, body)) {
        return NULL;
    }
    if (PyBytes_CheckExact(body)) {
        encoded = Py_NewRef(body);
    }
    else {
        encoded = PyObject_CallOneArg(method->encode, body); /* may run anything, so all is asked again */
        batch = (OpenBatch *)((End *)end)->open;
        if (encoded == NULL || !PyBytes_CheckExact(encoded) || !may_take(batch, topic, body)) {
            Py_XDECREF(encoded);
            return NULL;
        }
    }
    if (PyBytes_GET_SIZE(encoded) <= batch->alike) {
        id = Py_TYPE(batch->ids)->tp_iternext(batch->ids);
        if (id != NULL && PyList_Append(batch->pending, encoded) < 0) {
            Py_CLEAR(id);
        }
    }
    Py_DECREF(encoded);
    return id;
}

static int
call_begin(Call *self)
{ /* the long way */
    PyObject *args[] = {NULL, self->end, self->topic, self->body};
    if (self->topic == NULL) {
        args[2] = self->body;
    }
    self->rest = PyObject_Vectorcall(
        self->method->function, args + 1, (self->topic == NULL ? 2 : 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (self->rest == NULL) {
        self->state = OVER;
        return -1;
    }
    self->state = RUNNING;
    PyObject_GC_Track(self);
    return 0;
}

static PySendResult
call_send(PyObject *me, PyObject *value, PyObject **result)
{
    Call *self = (Call *)me;
    PySendResult how;
    if (self->state == NEW) {
        if (value != Py_None) {
            PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
            return PYGEN_ERROR;
        }
        *result = appended(self->method, self->end, self->topic, self->body);
        if (*result != NULL) {
            self->state = OVER;
            return PYGEN_RETURN;
        }
        if (PyErr_Occurred()) {
            self->state = OVER;
            return PYGEN_ERROR;
        }
        if (call_begin(self) < 0) {
            return PYGEN_ERROR;
        }
    }
    if (self->state == OVER) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return PYGEN_ERROR;
    }
    how = PyIter_Send(self->rest, value, result);
    if (how != PYGEN_NEXT) {
        self->state = OVER;
    }
    return how;
}

static PyObject *
call_iternext(PyObject *self)
{
    PyObject *result = NULL;
    PySendResult how = call_send(self, Py_None, &result);
    return as_iteration(how, result);
}

static PyObject *
call_send_method(PyObject *self, PyObject *value)
{
    PyObject *result = NULL;
    PySendResult how = call_send(self, value, &result);
    return as_iteration(how, result);
}

static PyObject *
call_throw(Call *self, PyObject *args)
{
    PyObject *found;
    if (self->state == OVER) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return NULL;
    }
    if (self->state == NEW && call_begin(self) < 0) {
        return NULL;
    }
    found = thrown_into(self->rest, args);
    if (found == NULL) {
        self->state = OVER;
    }
    return found;
}

static PyObject *
call_close(Call *self, PyObject *Py_UNUSED(nothing))
{
    int running = self->state == RUNNING;
    self->state = OVER;
    if (!running) {
        Py_RETURN_NONE;
    }
    return closed(Py_NewRef(self->rest));
}

static PyObject *
call_getattr(PyObject *me, PyObject *name)
{ /* names, code and frames are those of the coroutine, for those who show tasks */
    Call *self = (Call *)me;
    PyObject *found = PyObject_GenericGetAttr(me, name);
    if (found == NULL && self->method != NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttr(self->rest != NULL ? self->rest : self->method->function, name);
    }
    return found;
}

static PyMethodDef call_methods[] = {
    {"send", call_send_method, METH_O, NULL},
    {"throw", (PyCFunction)call_throw, METH_VARARGS, NULL},
    {"close", (PyCFunction)call_close, METH_NOARGS, NULL},
    {NULL},
};

static PyAsyncMethods call_async = {.am_await = itself, .am_send = call_send};

static PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus.core._quick.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)call_dealloc,
    .tp_traverse = (traverseproc)call_traverse,
    .tp_clear = (inquiry)call_clear,
    .tp_finalize = call_finalize,
    .tp_getattro = call_getattr,
    .tp_as_async = &call_async,
    .tp_iter = itself,
    .tp_iternext = call_iternext,
    .tp_methods = call_methods,
};

/* --- methods that make such calls -------------------------------------------------------------------------------- */

static PyObject *
method_call(PyObject *me, PyObject *const *args, size_t counted, PyObject *names)
{
    Method *self = (Method *)me;
    Py_ssize_t count = PyVectorcall_NARGS(counted);
    if (names == NULL && count == 2 + self->topics && PyObject_TypeCheck(args[0], &EndType)) {
        PyObject *topic = self->topics ? args[1] : NULL, *body = args[count - 1];
        if (may_take((OpenBatch *)((End *)args[0])->open, topic, body)) {
            return call_new(self, args[0], topic, body);
        }
    }
    return PyObject_Vectorcall(self->function, args, counted, names);
}

static int
method_traverse(Method *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->encode);
    return 0;
}

static int
method_clear(Method *self)
{
    Py_CLEAR(self->function);
    Py_CLEAR(self->encode);
    return 0;
}

static void
method_dealloc(Method *self)
{
    PyObject_GC_UnTrack(self);
    method_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
method_bind(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static PyObject *
method_getattr(PyObject *me, PyObject *name)
{ /* for everybody who asks, it is the function */
    Method *self = (Method *)me;
    return PyObject_GetAttr(self->function, name);
}

static PyObject *
method_repr(Method *self)
{
    return PyObject_Repr(self->function);
}

static PyTypeObject MethodType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus.core._quick.Method",
    .tp_basicsize = sizeof(Method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR
        | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Method, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)method_dealloc,
    .tp_traverse = (traverseproc)method_traverse,
    .tp_clear = (inquiry)method_clear,
    .tp_getattro = method_getattr,
    .tp_descr_get = method_bind,
    .tp_repr = (reprfunc)method_repr,
};

static PyObject *
method_new(PyObject *args, int topics)
{
    PyObject *function, *encode;
    Method *self;
    if (!PyArg_ParseTuple(args, "OO", &function, &encode)) {
        return NULL;
    }
    if (!PyFunction_Check(function) || !PyCallable_Check(encode)) {
        PyErr_SetString(PyExc_TypeError, "a coroutine function and a function that encodes are needed");
        return NULL;
    }
    self = (Method *)MethodType.tp_alloc(&MethodType, 0);
    if (self != NULL) {
        self->function = Py_NewRef(function);
        self->encode = Py_NewRef(encode);
        self->vectorcall = method_call;
        self->topics = topics;
    }
    return (PyObject *)self;
}

static PyObject *
sends(PyObject *Py_UNUSED(module), PyObject *args)
{
    return method_new(args, 0);
}

static PyObject *
publishes(PyObject *Py_UNUSED(module), PyObject *args)
{
    return method_new(args, 1);
}

static PyMethodDef functions[] = {
    {"sends", sends, METH_VARARGS, "A method that sends a body."},
    {"publishes", publishes, METH_VARARGS, "A method that publishes a body under a topic."},
    {NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pluribus.core._quick",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__quick(void)
{
    PyObject *made;
    PyTypeObject *shown[] = {&FlattenType, &OpenBatchType, &EndType};
    if (PyType_Ready(&CallType) < 0 || PyType_Ready(&MethodType) < 0) {
        return NULL;
    }
    made = PyModule_Create(&module);
    for (size_t place = 0; made != NULL && place < sizeof(shown) / sizeof(*shown); place++) {
        if (PyModule_AddType(made, shown[place]) < 0) {
            Py_CLEAR(made);
        }
    }
    return made;
}
