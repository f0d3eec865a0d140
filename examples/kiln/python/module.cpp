// kiln._kiln: operators() and apply(name, numbers), written with Python's C API.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>

#include "registry.hpp"

namespace {

PyObject* operators(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (const auto& entry : kiln::operators()) {
    PyObject* name = names ? PyUnicode_FromString(entry.first.c_str()) : nullptr;
    if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
    Py_XDECREF(name);
  }
  return names;
}

bool read(PyObject* numbers, kiln::Tensor& tensor) {
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    tensor[i] = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(numbers, i));
    if (PyErr_Occurred()) return false;
  }
  return true;
}

PyObject* list_of(kiln::Tensor& tensor) {
  PyObject* list = PyList_New(tensor.size());
  for (std::size_t i = 0; list && i < tensor.size(); ++i) {
    PyObject* number = PyFloat_FromDouble(tensor[i]);
    if (!number) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, number);
  }
  return list;
}

PyObject* applied(kiln::Function function, PyObject* numbers) {
  kiln::Tensor tensor(PySequence_Fast_GET_SIZE(numbers));
  if (!read(numbers, tensor)) return nullptr;
  try {
    function(tensor);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  return list_of(tensor);
}

PyObject* apply(PyObject*, PyObject* arguments) {
  const char* name;
  PyObject* given;
  if (!PyArg_ParseTuple(arguments, "sO:apply", &name, &given)) return nullptr;
  auto found = kiln::operators().find(name);
  if (found == kiln::operators().end()) return PyErr_Format(PyExc_KeyError, "no operator %s", name);
  PyObject* numbers = PySequence_Fast(given, "apply() wants a sequence of numbers");
  PyObject* result = numbers ? applied(found->second, numbers) : nullptr;
  Py_XDECREF(numbers);
  return result;
}

PyMethodDef methods[] = {
    {"operators", operators, METH_NOARGS, "The names of all operators."},
    {"apply", apply, METH_VARARGS, "apply(name, numbers): a list of what the operator makes of them."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kiln", nullptr, -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kiln() { return PyModule_Create(&module); }
