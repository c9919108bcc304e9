/* What is on the way of every message, frame or durable event, in C. `ends.py`, `passing.py`,
 * `reading.py`, `packing.py`, `arrivals.py` and `wires.py` have the same in Python, say what each is for, and are used where this was
 * not compiled. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define ONLY_3_11 (PY_VERSION_HEX < 0x030C0000) /* what only 3.11 needs: to be deleted with it */

#include "holding.h"
#include "awaitables.h"
#include "flatten.h"
#if ONLY_3_11
#include "batch.h"
#include "calls.h"
#endif
#include "waiting.h"
#include "passing.h"
#include "frames.h"
#include "reading.h"
#include "straight.h"
#include "wire.h"
#include "packing.h"

#if ONLY_3_11
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
#endif

static PyMethodDef functions[] = {
    {"way", way, METH_VARARGS, "Passes frames to whom they concern."},
#if ONLY_3_11
    {"sends", sends, METH_VARARGS, "A method that sends a body."},
    {"publishes", publishes, METH_VARARGS, "A method that publishes a body under a topic."},
#endif
    {NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pluribus._speed._quick",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__quick(void)
{
    PyObject *made;
    PyTypeObject *shown[] = {
        &FlattenType, &LineType, &ArrivalsType, &WaiterType, &RunnerType, &ReadingType, &StraightType,
#if ONLY_3_11
        &OpenBatchType, &EndType,
#endif
#ifndef MS_WINDOWS
        &WireType,
#endif
    };
#if ONLY_3_11
    if (PyType_Ready(&CallType) < 0 || PyType_Ready(&MethodType) < 0) {
        return NULL;
    }
#endif
    if (PyType_Ready(&TurnType) < 0 || PyType_Ready(&WayType) < 0 || PyType_Ready(&MessagesType) < 0 || name_methods() < 0 || name_parts() < 0 || name_words() < 0) {
        return NULL;
    }
    made = PyModule_Create(&module);
    for (size_t place = 0; made != NULL && place < sizeof(shown) / sizeof(*shown); place++) {
        if (PyModule_AddType(made, shown[place]) < 0) {
            Py_CLEAR(made);
        }
    }
    if (made != NULL && (add_packing(made) < 0 || add_fields(made) < 0)) {
        Py_CLEAR(made);
    }
    return made;
}
