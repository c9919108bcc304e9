/* What is on the way of every message, frame or durable event, in C. `ends.py`, `passing.py`,
 * `reading.py`, `packing.py`, `arrivals.py` and `wires.py` have the same in Python, say what each is for, and are used where this was
 * not compiled. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "awaitables.h"
#include "flatten.h"
#include "batch.h"
#include "calls.h"
#include "waiting.h"
#include "passing.h"
#include "frames.h"
#include "reading.h"
#include "straight.h"
#include "wire.h"
#include "packing.h"

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
    {"way", way, METH_VARARGS, "Passes frames to whom they concern."},
    {"publishes", publishes, METH_VARARGS, "A method that publishes a body under a topic."},
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
    PyTypeObject *shown[] = {&FlattenType, &OpenBatchType, &EndType, &LineType, &ArrivalsType, &WaiterType, &RunnerType, &ReadingType, &StraightType,
#ifndef MS_WINDOWS
                             &WireType,
#endif
    };
    if (PyType_Ready(&TurnType) < 0 || PyType_Ready(&CallType) < 0 || PyType_Ready(&MethodType) < 0
        || PyType_Ready(&WayType) < 0 || PyType_Ready(&MessagesType) < 0 || name_methods() < 0 || name_parts() < 0 || name_words() < 0) {
        return NULL;
    }
    made = PyModule_Create(&module);
    for (size_t place = 0; made != NULL && place < sizeof(shown) / sizeof(*shown); place++) {
        if (PyModule_AddType(made, shown[place]) < 0) {
            Py_CLEAR(made);
        }
    }
    if (made != NULL && add_packing(made) < 0) {
        Py_CLEAR(made);
    }
    return made;
}
