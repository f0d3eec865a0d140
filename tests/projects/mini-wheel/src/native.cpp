#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core.hpp"

namespace {

PyObject* py_total(PyObject*, PyObject*) { return PyLong_FromLong(total()); }
PyObject* py_where(PyObject*, PyObject*) { return PyUnicode_FromString(where()); }
PyObject* py_loud(PyObject*, PyObject*) {
#ifdef SHOUT
  Py_RETURN_TRUE;
#else
  Py_RETURN_FALSE;
#endif
}

PyMethodDef methods[] = {{"total", py_total, METH_NOARGS, "The sum of all parts"},
                         {"where", py_where, METH_NOARGS, "The source of the core"},
                         {"loud", py_loud, METH_NOARGS, "Whether it shouts"},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&module); }
