/* 3.11 only, to be deleted with it.
 *
 * Methods of an End: coroutine functions with a shorter way. If the batch takes the body, it is appended; if not, the
 * coroutine runs as if nothing had been tried. Nothing happens before the call is awaited. */

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
    enum { NEW, TRYING, RUNNING, OVER } state; /* running: the coroutine knows the rest */
} Call;

static PyTypeObject CallType, MethodType;

#define SPARE_MAX 8
static Call *spare[SPARE_MAX];
static int spares = 0;

static void
call_forget(Call *self)
{ /* what it was given, when it needs that no more: a task that ended may be kept for long */
    Py_CLEAR(self->end);
    Py_CLEAR(self->topic);
    Py_CLEAR(self->body);
}

static int
call_clear(Call *self)
{
    self->state = OVER;
    call_forget(self);
    Py_CLEAR(self->method);
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
    if (self->state == NEW && PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0) {
        return;
    }
    PyObject_GC_UnTrack(self);
    call_clear(self);
    if (spares < SPARE_MAX && !PyObject_GC_IsFinalized((PyObject *)self)) { /* else it would never warn again */
        spare[spares++] = self;
    }
    else {
        PyObject_GC_Del(self);
    }
}

static PyObject *
call_new(Method *method, PyObject *end, PyObject *topic, PyObject *body)
{
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
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int
same_text(PyObject *a, PyObject *b)
{
    return a == b || (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0);
}

static OpenBatch *
open_batch(PyObject *end)
{ /* NULL: it has something else, or nothing */
    PyObject *open = ((End *)end)->open;
    if (open == NULL || (Py_TYPE(open)->tp_base != &OpenBatchType && !PyObject_TypeCheck(open, &OpenBatchType))) {
        return NULL;
    }
    return (OpenBatch *)open;
}

#define NOT_TAKEN -2
#define NO_PLACE -1

static int
place_of(OpenBatch *batch, PyObject *topic)
{ /* of a topic of the batch; NO_PLACE if it is the only one */
    PyObject *place;
    long number;
    if (batch->solo == NULL || !PyUnicode_CheckExact(topic)) {
        return NOT_TAKEN;
    }
    if (batch->solo != Py_None) {
        return same_text(batch->solo, topic) ? NO_PLACE : NOT_TAKEN;
    }
    if (batch->places == NULL || !PyDict_CheckExact(batch->places) || batch->of == NULL
        || !PyByteArray_CheckExact(batch->of)) {
        return NOT_TAKEN;
    }
    if (looked_up(batch->places, topic, &place) < 0 || place == NULL || !PyLong_CheckExact(place)) {
        PyErr_Clear();
        Py_XDECREF(place);
        return NOT_TAKEN;
    }
    number = PyLong_AsLong(place);
    Py_DECREF(place);
    if (number < 0 || number > 255) {
        PyErr_Clear();
        return NOT_TAKEN;
    }
    return (int)number;
}

static int
may_take(OpenBatch *batch, PyObject *topic, PyObject *body)
{ /* the place of its topic, or NO_PLACE */
    if (batch == NULL || (PyObject *)Py_TYPE(body) != batch->type || batch->ids == NULL || batch->pending == NULL
        || !PyList_CheckExact(batch->pending)) {
        return NOT_TAKEN;
    }
    return topic == NULL ? NO_PLACE : place_of(batch, topic);
}

static PyObject *
taken_id(OpenBatch *batch)
{ /* NULL without an error: there is none left */
    PyObject *id, *ids = batch->ids;
    if (!PyIter_Check(ids)) {
        return NULL;
    }
    Py_INCREF(ids); /* which may run anything, too */
    id = Py_TYPE(ids)->tp_iternext(ids);
    Py_DECREF(ids);
    return id;
}

static int
append_place(OpenBatch *batch, int place)
{
    Py_ssize_t size;
    if (batch->of == NULL || !PyByteArray_CheckExact(batch->of)) {
        PyErr_SetString(PyExc_TypeError, "the batch has no places of topics");
        return -1;
    }
    size = PyByteArray_GET_SIZE(batch->of);
    if (PyByteArray_Resize(batch->of, size + 1) < 0) {
        return -1;
    }
    PyByteArray_AS_STRING(batch->of)[size] = (char)place;
    return 0;
}

static int
append(OpenBatch *batch, PyObject *encoded, int place)
{
    if (batch->pending == NULL || !PyList_CheckExact(batch->pending)) {
        PyErr_SetString(PyExc_TypeError, "the batch has no list of pending bodies");
        return -1;
    }
    if (place != NO_PLACE && append_place(batch, place) < 0) {
        return -1;
    }
    return PyList_Append(batch->pending, encoded);
}

static PyObject *
appended(Method *method, PyObject *end, PyObject *topic, PyObject *body)
{ /* the body's identity; NULL without an error: the batch does not take it */
    OpenBatch *batch = open_batch(end);
    PyObject *encoded, *id = NULL;
    int place;
    Py_XINCREF(batch);
    place = may_take(batch, topic, body);
    if (place == NOT_TAKEN) {
        Py_XDECREF(batch);
        return NULL;
    }
    if (PyBytes_CheckExact(body)) {
        encoded = Py_NewRef(body);
    }
    else {
        encoded = PyObject_CallOneArg(method->encode, body); /* may run anything, so all is asked again */
        Py_DECREF(batch);
        if (encoded == NULL) {
            return NULL;
        }
        batch = open_batch(end);
        Py_XINCREF(batch);
        place = PyBytes_CheckExact(encoded) ? may_take(batch, topic, body) : NOT_TAKEN;
    }
    if (place != NOT_TAKEN && PyBytes_GET_SIZE(encoded) <= batch->alike) {
        id = taken_id(batch);
        if (id != NULL && append(batch, encoded, place) < 0) {
            Py_CLEAR(id);
        }
    }
    Py_XDECREF(batch);
    Py_DECREF(encoded);
    return id;
}

static int
may_go_alone(PyObject *end, PyObject *topic, PyObject *body)
{
    PyObject *alone = ((End *)end)->alone;
    return alone != NULL && alone != Py_None && topic == NULL && PyBytes_CheckExact(body);
}

static PyObject *
gone_alone(PyObject *end, PyObject *body)
{ /* the body's identity; NULL without an error: it must not */
    PyObject *alone = Py_NewRef(((End *)end)->alone), *id = PyObject_CallOneArg(alone, body);
    Py_DECREF(alone);
    if (id == Py_None) {
        Py_CLEAR(id);
    }
    return id;
}

static int
call_begin(Call *self)
{ /* the long way */
    PyObject *args[] = {NULL, self->end, self->topic, self->body};
    if (self->topic == NULL) {
        args[2] = self->body;
    }
    self->state = TRYING;
    self->rest = PyObject_Vectorcall(
        self->method->function, args + 1, (self->topic == NULL ? 2 : 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    self->state = self->rest == NULL ? OVER : RUNNING;
    call_forget(self);
    return self->rest == NULL ? -1 : 0;
}

static int
call_refuses(Call *self)
{
    if (self->state == TRYING) {
        PyErr_SetString(PyExc_ValueError, "coroutine already executing");
    }
    else if (self->state == OVER) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
    }
    return self->state == TRYING || self->state == OVER;
}

static PySendResult
call_send(PyObject *me, PyObject *value, PyObject **result)
{
    Call *self = (Call *)me;
    *result = NULL;
    if (call_refuses(self)) {
        return PYGEN_ERROR;
    }
    if (self->state == NEW) {
        if (value != Py_None) {
            PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
            return PYGEN_ERROR;
        }
        self->state = TRYING;
        *result = appended(self->method, self->end, self->topic, self->body);
        if (*result == NULL && !PyErr_Occurred() && may_go_alone(self->end, self->topic, self->body)) {
            *result = gone_alone(self->end, self->body);
        }
        if (*result != NULL) {
            self->state = OVER;
            call_forget(self);
            return PYGEN_RETURN;
        }
        if (PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
                self->state = OVER;
                call_forget(self);
                return PYGEN_ERROR;
            }
            PyErr_Clear(); /* no identity is left; or `encode` raised it, and the coroutine knows what that means */
        }
        if (call_begin(self) < 0) {
            return PYGEN_ERROR;
        }
    }
    return PyIter_Send(self->rest, value, result);
}

static PyObject *
call_throw(Call *self, PyObject *args)
{
    if (call_refuses(self) || (self->state == NEW && call_begin(self) < 0)) {
        return NULL;
    }
    return thrown_into(self->rest, args);
}

static PyObject *
call_close(Call *self, PyObject *Py_UNUSED(nothing))
{
    if (self->state == RUNNING) {
        return closed(Py_NewRef(self->rest));
    }
    if (self->state == TRYING) {
        call_refuses(self);
        return NULL;
    }
    self->state = OVER;
    call_forget(self);
    Py_RETURN_NONE;
}

static PyObject *
call_await(PyObject *me)
{ /* whoever awaits it second is told so, and the first is left alone */
    Call *self = (Call *)me;
    if (self->rest != NULL) {
        PyObject *awaited = PyObject_GetAttrString(self->rest, "cr_await");
        Py_XDECREF(awaited);
        if (awaited != Py_None) {
            if (awaited != NULL) {
                PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
            }
            return NULL;
        }
    }
    return Py_NewRef(me);
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
    {"send", sent, METH_O, NULL},
    {"throw", (PyCFunction)call_throw, METH_VARARGS, NULL},
    {"close", (PyCFunction)call_close, METH_NOARGS, NULL},
    {NULL},
};

static PyAsyncMethods call_async = {.am_await = call_await, .am_send = call_send};

static PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)call_dealloc,
    .tp_traverse = (traverseproc)call_traverse,
    .tp_clear = (inquiry)call_clear,
    .tp_finalize = call_finalize,
    .tp_getattro = call_getattr,
    .tp_as_async = &call_async,
    .tp_iter = itself,
    .tp_iternext = next_sent,
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
        OpenBatch *batch = open_batch(args[0]);
        int taken;
        Py_XINCREF(batch);
        taken = may_take(batch, topic, body) != NOT_TAKEN;
        Py_XDECREF(batch);
        if (taken || may_go_alone(args[0], topic, body)) {
            return call_new(self, args[0], topic, body);
        }
    }
    return PyObject_Vectorcall(self->function, args, counted, names);
}

static int
method_traverse(Method *self, visitproc visit, void *arg)
{ /* no tp_clear: it never changes, so every cycle has something that does */
    Py_VISIT(self->function);
    Py_VISIT(self->encode);
    return 0;
}

static void
method_dealloc(Method *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->function);
    Py_XDECREF(self->encode);
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
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Method",
    .tp_basicsize = sizeof(Method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR
        | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Method, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)method_dealloc,
    .tp_traverse = (traverseproc)method_traverse,
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
