/* Tasks that wait for a message, and the short way to wake them. `arrivals.py` says what each is for. A task that
 * meets one of these calls no Python on its way to sleep and back. */

#define TICK_S 0.001 /* loops look at their timers so often */

typedef struct {
    PyObject_HEAD
    PyObject *waiters; /* a list: who goes on when what was received has been settled */
    char receiving;
    char eager;
} Line;

typedef struct {
    PyObject_HEAD
    Line *line;
    PyObject *waiters; /* a list */
    PyObject *timer;
    double due; /* when the timer is: Py_HUGE_VAL if there is none */
} Arrivals;

typedef struct {
    PyObject_HEAD
    PyObject *loop;
    PyObject *waiters; /* the list that it is in while it waits */
    PyObject *callback;
    PyObject *context;
    PyObject *given_up; /* why */
    double due;         /* Py_HUGE_VAL: it has time */
    char blocking;
    char done;
} Waiter;

static PyTypeObject LineType, ArrivalsType, WaiterType;
static PyObject *text_call_at, *text_call_soon, *text_cancel, *text_context, *text_go_on, *text_look, *text_time;

static int
name_methods(void)
{
    return (text_call_at = PyUnicode_InternFromString("call_at")) == NULL
            || (text_call_soon = PyUnicode_InternFromString("call_soon")) == NULL
            || (text_cancel = PyUnicode_InternFromString("cancel")) == NULL
            || (text_context = PyUnicode_InternFromString("context")) == NULL
            || (text_go_on = PyUnicode_InternFromString("_go_on")) == NULL
            || (text_look = PyUnicode_InternFromString("_look")) == NULL
            || (text_time = PyUnicode_InternFromString("time")) == NULL
        ? -1
        : 0;
}

/* Waiter */

static int
waiter_traverse(Waiter *self, visitproc visit, void *arg)
{
    Py_VISIT(self->loop);
    Py_VISIT(self->waiters);
    Py_VISIT(self->callback);
    Py_VISIT(self->context);
    Py_VISIT(self->given_up);
    return 0;
}

static int
waiter_clear(Waiter *self)
{
    Py_CLEAR(self->loop);
    Py_CLEAR(self->waiters);
    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
    Py_CLEAR(self->given_up);
    return 0;
}

static void
waiter_dealloc(Waiter *self)
{
    PyObject_GC_UnTrack(self);
    waiter_clear(self);
    PyObject_GC_Del(self);
}

static PyObject *
waiter_new(PyObject *loop, PyObject *waiters, double due)
{ /* in the list already */
    Waiter *self = PyObject_GC_New(Waiter, &WaiterType);
    if (self == NULL) {
        return NULL;
    }
    self->loop = Py_NewRef(loop);
    self->waiters = Py_NewRef(waiters);
    self->callback = self->context = self->given_up = NULL;
    self->due = due;
    self->blocking = self->done = 0;
    PyObject_GC_Track(self);
    if (PyList_Append(waiters, (PyObject *)self) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *
waiter_next(Waiter *self)
{ /* to the task, which sleeps; the end when it was woken, or if it was before it slept */
    if (self->done) {
        return NULL;
    }
    self->blocking = 1;
    return Py_NewRef((PyObject *)self);
}

static PyObject *
waiter_get_loop(Waiter *self, PyObject *Py_UNUSED(none))
{
    return Py_NewRef(self->loop != NULL ? self->loop : Py_None);
}

static PyObject *
waiter_add_done_callback(Waiter *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count != 1 || named > 1 || (named == 1 && PyUnicode_Compare(PyTuple_GET_ITEM(names, 0), text_context) != 0)) {
        PyErr_SetString(PyExc_TypeError, "add_done_callback takes a call-back, and perhaps a context");
        return NULL;
    }
    Py_XSETREF(self->callback, Py_NewRef(given[0]));
    Py_XSETREF(self->context, named == 1 && given[1] != Py_None ? Py_NewRef(given[1]) : NULL);
    Py_RETURN_NONE;
}

static int
waiter_run_soon(Waiter *self)
{
    PyObject *go_on, *made;
    if (self->done) {
        return 0;
    }
    self->done = 1;
    if (self->loop == NULL) { /* it was collected */
        return 0;
    }
    go_on = PyObject_GetAttr((PyObject *)self, text_go_on);
    if (go_on == NULL) {
        return -1;
    }
    if (self->context != NULL) {
        static PyObject *names = NULL;
        if (names == NULL && (names = PyTuple_Pack(1, text_context)) == NULL) {
            Py_DECREF(go_on);
            return -1;
        }
        PyObject *given[] = {self->loop, go_on, self->context};
        made = PyObject_VectorcallMethod(text_call_soon, given, 2, names);
    }
    else {
        PyObject *given[] = {self->loop, go_on};
        made = PyObject_VectorcallMethod(text_call_soon, given, 2, NULL);
    }
    Py_DECREF(go_on);
    Py_XDECREF(made);
    return made == NULL ? -1 : 0;
}

static PyObject *
waiter_give_up(Waiter *self, PyObject *why)
{
    Py_ssize_t place;
    if (self->done) {
        Py_RETURN_FALSE;
    }
    Py_XSETREF(self->given_up, Py_NewRef(why));
    for (place = 0; self->waiters != NULL && place < PyList_GET_SIZE(self->waiters); place++) {
        if (PyList_GET_ITEM(self->waiters, place) == (PyObject *)self) {
            if (PyList_SetSlice(self->waiters, place, place + 1, NULL) < 0) {
                return NULL;
            }
            break;
        }
    }
    if (waiter_run_soon(self) < 0) {
        return NULL;
    }
    Py_RETURN_TRUE;
}

static PyObject *
waiter_cancel(Waiter *self, PyObject *const *Py_UNUSED(given), Py_ssize_t Py_UNUSED(count), PyObject *Py_UNUSED(names))
{
    static PyObject *cancelled = NULL;
    if (imported(&cancelled, "asyncio.exceptions", "CancelledError") == NULL) {
        return NULL;
    }
    return waiter_give_up(self, cancelled);
}

static PyObject *
waiter_result(Waiter *self, PyObject *Py_UNUSED(none))
{
    if (self->given_up != NULL) {
        PyErr_SetNone(self->given_up);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
waiter_go_on(Waiter *self, PyObject *Py_UNUSED(none))
{ /* as the loop calls it, in the context of the task */
    PyObject *callback = self->callback, *made;
    if (callback == NULL) {
        Py_RETURN_NONE;
    }
    self->callback = NULL;
    made = PyObject_CallOneArg(callback, (PyObject *)self);
    Py_DECREF(callback);
    return made;
}

static int
waiter_run(Waiter *self)
{ /* now: no task runs */
    PyObject *callback = self->callback, *context = self->context, *made;
    if (self->done) {
        return 0;
    }
    self->done = 1;
    if (callback == NULL || context == NULL) {
        return 0;
    }
    self->callback = NULL;
    if (PyContext_Enter(context) < 0) {
        Py_DECREF(callback);
        return -1;
    }
    Py_INCREF(context);
    made = PyObject_CallOneArg(callback, (PyObject *)self);
    Py_DECREF(callback);
    if (PyContext_Exit(context) < 0) {
        Py_CLEAR(made);
    }
    Py_DECREF(context);
    Py_XDECREF(made);
    return made == NULL ? -1 : 0;
}

static PyMemberDef waiter_members[] = {
    {"_asyncio_future_blocking", T_BOOL, offsetof(Waiter, blocking), 0, NULL},
    {NULL},
};

static PyMethodDef waiter_methods[] = {
    {"get_loop", (PyCFunction)waiter_get_loop, METH_NOARGS, NULL},
    {"add_done_callback", (PyCFunction)(void (*)(void))waiter_add_done_callback, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"cancel", (PyCFunction)(void (*)(void))waiter_cancel, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"result", (PyCFunction)waiter_result, METH_NOARGS, NULL},
    {"_go_on", (PyCFunction)waiter_go_on, METH_NOARGS, NULL},
    {NULL},
};

static PyAsyncMethods waiter_async = {.am_await = itself};

static PyTypeObject WaiterType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Waiter",
    .tp_doc = "One task that waits; awaited once.",
    .tp_basicsize = sizeof(Waiter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)waiter_dealloc,
    .tp_traverse = (traverseproc)waiter_traverse,
    .tp_clear = (inquiry)waiter_clear,
    .tp_as_async = &waiter_async,
    .tp_iter = itself,
    .tp_iternext = (iternextfunc)waiter_next,
    .tp_members = waiter_members,
    .tp_methods = waiter_methods,
};

static int
is_waiter(PyObject *object)
{ /* the lists can be reached from Python, so anything may be in them */
    if (Py_IS_TYPE(object, &WaiterType)) {
        return 1;
    }
    PyErr_SetString(PyExc_TypeError, "whoever waits is a Waiter");
    return 0;
}

/* Line */

static int
line_traverse(Line *self, visitproc visit, void *arg)
{
    Py_VISIT(self->waiters);
    return 0;
}

static int
line_clear(Line *self)
{
    Py_CLEAR(self->waiters);
    return 0;
}

static void
line_dealloc(Line *self)
{
    PyObject_GC_UnTrack(self);
    line_clear(self);
    PyObject_GC_Del(self);
}

static PyObject *
line_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *named)
{
    static char *names[] = {NULL};
    Line *self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "", names)) {
        return NULL;
    }
    self = PyObject_GC_New(Line, &LineType);
    if (self == NULL) {
        return NULL;
    }
    self->receiving = self->eager = 0;
    self->waiters = PyList_New(0);
    PyObject_GC_Track(self);
    if (self->waiters == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *
line_run(Line *self, PyObject *Py_UNUSED(none))
{ /* whoever goes on may wake others */
    while (self->waiters != NULL && PyList_GET_SIZE(self->waiters) > 0) {
        PyObject *waiters = self->waiters, *next = PyList_New(0);
        Py_ssize_t place;
        if (next == NULL) {
            return NULL;
        }
        self->waiters = next;
        for (place = 0; place < PyList_GET_SIZE(waiters); place++) {
            PyObject *waiter = Py_NewRef(PyList_GET_ITEM(waiters, place));
            int failed = !is_waiter(waiter) || waiter_run((Waiter *)waiter) < 0;
            Py_DECREF(waiter);
            if (failed) {
                Py_DECREF(waiters);
                return NULL;
            }
        }
        Py_DECREF(waiters);
    }
    Py_RETURN_NONE;
}

static PyObject *
line_feed(Line *self, PyObject *const *given, Py_ssize_t count)
{
    PyObject *fed, *went, *type, *error, *trace;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "feed takes how it is run, who receives, and datagrams");
        return NULL;
    }
    self->receiving = self->eager;
    fed = PyObject_Vectorcall(given[0], given + 1, 2, NULL);
    PyErr_Fetch(&type, &error, &trace);
    went = line_run(self, NULL); /* whatever a protocol did wrong: what came is there to be read */
    self->receiving = 0;
    if (went == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        Py_CLEAR(fed);
    }
    else {
        PyErr_Restore(type, error, trace);
        Py_DECREF(went);
    }
    return fed;
}

static PyMemberDef line_members[] = {
    {"receiving", T_BOOL, offsetof(Line, receiving), 0, NULL},
    {"eager", T_BOOL, offsetof(Line, eager), 0, NULL},
    {"waiters", T_OBJECT_EX, offsetof(Line, waiters), READONLY, NULL},
    {NULL},
};

static PyMethodDef line_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))line_feed, METH_FASTCALL, "The engine's call-back."},
    {"run", (PyCFunction)line_run, METH_NOARGS, "Let those go on who waited for what was received."},
    {NULL},
};

static PyTypeObject LineType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Line",
    .tp_doc = "Who goes on when the datagrams at hand have been received. One a bus.",
    .tp_basicsize = sizeof(Line),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = line_new,
    .tp_dealloc = (destructor)line_dealloc,
    .tp_traverse = (traverseproc)line_traverse,
    .tp_clear = (inquiry)line_clear,
    .tp_members = line_members,
    .tp_methods = line_methods,
};

/* Arrivals */

static int
arrivals_traverse(Arrivals *self, visitproc visit, void *arg)
{
    Py_VISIT(self->line);
    Py_VISIT(self->waiters);
    Py_VISIT(self->timer);
    return 0;
}

static int
arrivals_clear(Arrivals *self)
{
    Py_CLEAR(self->line);
    Py_CLEAR(self->waiters);
    Py_CLEAR(self->timer);
    return 0;
}

static void
arrivals_dealloc(Arrivals *self)
{
    PyObject_GC_UnTrack(self);
    arrivals_clear(self);
    PyObject_GC_Del(self);
}

static PyObject *
arrivals_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *named)
{
    static char *names[] = {"line", NULL};
    PyObject *line;
    Arrivals *self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O!", names, &LineType, &line)) {
        return NULL;
    }
    self = PyObject_GC_New(Arrivals, &ArrivalsType);
    if (self == NULL) {
        return NULL;
    }
    self->line = (Line *)Py_NewRef(line);
    self->timer = NULL;
    self->due = Py_HUGE_VAL;
    self->waiters = PyList_New(0);
    PyObject_GC_Track(self);
    if (self->waiters == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
time_of(PyObject *loop, double *now)
{
    PyObject *time = PyObject_CallMethodNoArgs(loop, text_time);
    if (time == NULL) {
        return -1;
    }
    *now = PyFloat_AsDouble(time);
    Py_DECREF(time);
    return *now == -1.0 && PyErr_Occurred() ? -1 : 0;
}

static int
arrivals_watch(Arrivals *self, PyObject *loop, double due)
{ /* one timer for all that wait */
    PyObject *look, *when, *timer = NULL;
    if (self->timer != NULL) {
        PyObject *over = PyObject_CallMethodNoArgs(self->timer, text_cancel);
        if (over == NULL) {
            return -1;
        }
        Py_DECREF(over);
    }
    look = PyObject_GetAttr((PyObject *)self, text_look);
    when = PyFloat_FromDouble(due);
    if (look != NULL && when != NULL) {
        PyObject *given[] = {loop, when, look, loop};
        timer = PyObject_VectorcallMethod(text_call_at, given, 4, NULL);
    }
    Py_XDECREF(look);
    Py_XDECREF(when);
    Py_XSETREF(self->timer, timer);
    self->due = timer == NULL ? Py_HUGE_VAL : due;
    return timer == NULL ? -1 : 0;
}

static PyObject *
arrivals_look(Arrivals *self, PyObject *loop)
{ /* those whose time is over give up */
    Py_ssize_t place;
    double now, due = Py_HUGE_VAL;
    PyObject *waiters = self->waiters == NULL ? PyList_New(0) : PyList_GetSlice(self->waiters, 0, PY_SSIZE_T_MAX);
    Py_CLEAR(self->timer);
    self->due = Py_HUGE_VAL;
    if (waiters == NULL || time_of(loop, &now) < 0) {
        Py_XDECREF(waiters);
        return NULL;
    }
    for (place = 0; place < PyList_GET_SIZE(waiters); place++) {
        Waiter *waiter = (Waiter *)PyList_GET_ITEM(waiters, place);
        if (!is_waiter((PyObject *)waiter)) {
            Py_DECREF(waiters);
            return NULL;
        }
        if (waiter->due <= now + TICK_S) {
            PyObject *given_up = waiter_give_up(waiter, PyExc_TimeoutError);
            if (given_up == NULL) {
                Py_DECREF(waiters);
                return NULL;
            }
            Py_DECREF(given_up);
        }
        else if (waiter->due < due) {
            due = waiter->due;
        }
    }
    Py_DECREF(waiters);
    if (due < self->due && arrivals_watch(self, loop, due) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
arrivals_wait(Arrivals *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    static PyObject *get_running_loop = NULL;
    PyObject *loop, *waiter = NULL;
    double due = Py_HUGE_VAL, now;
    if (count > 1 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "wait takes a number of seconds, or nothing");
        return NULL;
    }
    if (imported(&get_running_loop, "asyncio.events", "get_running_loop") == NULL) {
        return NULL;
    }
    loop = PyObject_CallNoArgs(get_running_loop);
    if (loop == NULL) {
        return NULL;
    }
    if (count == 1 && given[0] != Py_None) {
        due = PyFloat_AsDouble(given[0]);
        if ((due == -1.0 && PyErr_Occurred()) || time_of(loop, &now) < 0) {
            Py_DECREF(loop);
            return NULL;
        }
        due += now;
    }
    if (self->waiters == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "these arrivals were collected");
    }
    else if (!(due < self->due) || arrivals_watch(self, loop, due) == 0) {
        waiter = waiter_new(loop, self->waiters, due);
    }
    Py_DECREF(loop);
    return waiter;
}

static PyObject *
arrivals_wake(Arrivals *self, PyObject *Py_UNUSED(none))
{
    Py_ssize_t count = self->waiters == NULL || self->line == NULL ? 0 : PyList_GET_SIZE(self->waiters), place;
    PyObject *waiters;
    if (count == 0) {
        Py_RETURN_NONE;
    }
    waiters = PyList_GetSlice(self->waiters, 0, count);
    if (waiters == NULL || PyList_SetSlice(self->waiters, 0, count, NULL) < 0) {
        Py_XDECREF(waiters);
        return NULL;
    }
    for (place = 0; place < PyList_GET_SIZE(waiters); place++) {
        PyObject *waiter = PyList_GET_ITEM(waiters, place);
        if (!is_waiter(waiter)
            || (self->line->receiving && self->line->waiters != NULL ? PyList_Append(self->line->waiters, waiter) : waiter_run_soon((Waiter *)waiter)) < 0) {
            Py_DECREF(waiters);
            return NULL;
        }
    }
    Py_DECREF(waiters);
    Py_RETURN_NONE;
}

static PyMemberDef arrivals_members[] = {
    {"_waiters", T_OBJECT_EX, offsetof(Arrivals, waiters), READONLY, NULL},
    {NULL},
};

static PyMethodDef arrivals_methods[] = {
    {"wait", (PyCFunction)(void (*)(void))arrivals_wait, METH_FASTCALL | METH_KEYWORDS, "To be awaited at once."},
    {"_look", (PyCFunction)arrivals_look, METH_O, NULL},
    {"wake", (PyCFunction)arrivals_wake, METH_NOARGS, "Those who wait go on: within the call-back, or by the loop."},
    {NULL},
};

static PyTypeObject ArrivalsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Arrivals",
    .tp_doc = "The tasks that wait for the next message of one group.",
    .tp_basicsize = sizeof(Arrivals),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = arrivals_new,
    .tp_dealloc = (destructor)arrivals_dealloc,
    .tp_traverse = (traverseproc)arrivals_traverse,
    .tp_clear = (inquiry)arrivals_clear,
    .tp_members = arrivals_members,
    .tp_methods = arrivals_methods,
};
