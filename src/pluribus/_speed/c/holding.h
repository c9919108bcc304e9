/* What is held while anything may run. To make a tuple may start a collection, to look something up may call a key's
 * `__eq__`: both may run any Python, which may take away what C only borrowed. */

static PyObject *
tuple_of(Py_ssize_t count, PyObject *const *items)
{ /* the items are held before the tuple is made; one that is NULL, a field that was deleted, is an error */
    PyObject *made;
    for (Py_ssize_t place = 0; place < count; place++) {
        if (items[place] == NULL) {
            PyErr_SetString(PyExc_TypeError, "a field that is needed was deleted");
            return NULL;
        }
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        Py_INCREF(items[place]);
    }
    made = PyTuple_New(count);
    for (Py_ssize_t place = 0; place < count; place++) {
        if (made != NULL) {
            PyTuple_SET_ITEM(made, place, items[place]);
        }
        else {
            Py_DECREF(items[place]);
        }
    }
    return made;
}

static int
looked_up(PyObject *dict, PyObject *key, PyObject **found)
{ /* a new reference; or NULL, and -1 if that is an error. A dict that is none has nothing */
    *found = NULL;
    if (dict == NULL || key == NULL || !PyDict_CheckExact(dict)) {
        return 0;
    }
    Py_INCREF(dict);
    Py_INCREF(key);
    *found = Py_XNewRef(PyDict_GetItemWithError(dict, key));
    Py_DECREF(key);
    Py_DECREF(dict);
    return *found == NULL && PyErr_Occurred() ? -1 : 0;
}
