/* What awaitables have in common. They answer through `am_send`, so no exception is made to bring a result. */

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
sent(PyObject *self, PyObject *value)
{ /* `send`, of all that have `am_send` */
    PyObject *result;
    PySendResult how = Py_TYPE(self)->tp_as_async->am_send(self, value, &result);
    return as_iteration(how, result);
}

static PyObject *
next_sent(PyObject *self)
{
    return sent(self, Py_None);
}

static PyObject *
itself(PyObject *self)
{
    return Py_NewRef(self);
}

static PyObject *
imported(PyObject **kept, const char *module, const char *name)
{ /* of a module, looked up once; a borrowed reference */
    if (*kept == NULL) {
        PyObject *found = PyImport_ImportModule(module);
        *kept = found == NULL ? NULL : PyObject_GetAttrString(found, name);
        Py_XDECREF(found);
    }
    return *kept;
}
