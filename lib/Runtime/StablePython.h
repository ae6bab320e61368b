//===- StablePython.h - Python's stable ABI -------------------------------===//
//
// Functions that the process has loaded already, so that one library fits every
// version and is built without Python's headers. None of Python's macros is
// used: they would look into objects.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_RUNTIME_STABLEPYTHON_H
#define TRAINKERNEL_LIB_RUNTIME_STABLEPYTHON_H

#include <cstddef>
#include <cstdint>
#include <vector>

// Weak: found in the running interpreter, or null in a process without one.
#define TK_PYTHON extern "C" __attribute__((weak))

struct PyObject;
using PyFunction = PyObject *(*)(PyObject *self, PyObject *const *args, intptr_t count);
struct PyMethodDef {
  const char *name;
  PyFunction function;
  int flags;
  const char *doc;
};
constexpr int kFastCall = 0x80;

TK_PYTHON PyObject *PyObject_Type(PyObject *);
TK_PYTHON PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
TK_PYTHON int PyObject_RichCompareBool(PyObject *, PyObject *, int);
TK_PYTHON void Py_IncRef(PyObject *);
TK_PYTHON void Py_DecRef(PyObject *);
TK_PYTHON PyObject *PyBool_FromLong(long);
TK_PYTHON PyObject *PyDict_Copy(PyObject *);
TK_PYTHON PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
TK_PYTHON int PyDict_Next(PyObject *, intptr_t *, PyObject **, PyObject **);
TK_PYTHON int PyDict_SetItem(PyObject *, PyObject *, PyObject *);
TK_PYTHON intptr_t PyDict_Size(PyObject *);
TK_PYTHON intptr_t PyList_Size(PyObject *);
TK_PYTHON PyObject *PyList_GetItem(PyObject *, intptr_t);
TK_PYTHON PyObject *PyList_New(intptr_t);
TK_PYTHON int PyList_SetItem(PyObject *, intptr_t, PyObject *);
TK_PYTHON PyObject *PySequence_List(PyObject *);
TK_PYTHON intptr_t PyTuple_Size(PyObject *);
TK_PYTHON PyObject *PyTuple_GetItem(PyObject *, intptr_t);
TK_PYTHON PyObject *PyTuple_New(intptr_t);
TK_PYTHON int PyTuple_SetItem(PyObject *, intptr_t, PyObject *);
TK_PYTHON double PyFloat_AsDouble(PyObject *);
TK_PYTHON PyObject *PyLong_FromLong(long);
TK_PYTHON PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
TK_PYTHON void PyErr_Clear();
TK_PYTHON PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *));
TK_PYTHON void *PyCapsule_GetPointer(PyObject *, const char *);
TK_PYTHON PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
TK_PYTHON void *PyEval_SaveThread();
TK_PYTHON void PyEval_RestoreThread(void *);
TK_PYTHON int Py_IsInitialized();

namespace trainkernel {

/// Whether the process has all of these.
inline bool hasPython() {
  return PyObject_Type && PyObject_Vectorcall && PyObject_RichCompareBool && Py_IncRef && Py_DecRef &&
         PyBool_FromLong && PyDict_Copy && PyDict_GetItemWithError && PyDict_Next && PyDict_SetItem && PyDict_Size &&
         PyList_Size && PyList_GetItem && PyList_New && PyList_SetItem && PySequence_List && PyTuple_Size &&
         PyTuple_GetItem && PyTuple_New && PyTuple_SetItem && PyFloat_AsDouble && PyLong_FromLong &&
         PyLong_FromUnsignedLongLong && PyErr_Clear && PyCapsule_New && PyCapsule_GetPointer && PyCFunction_NewEx &&
         PyEval_SaveThread && PyEval_RestoreThread && Py_IsInitialized;
}

/// The type of an object, which keeps it.
inline PyObject *typeOf(PyObject *object) {
  PyObject *type = PyObject_Type(object);
  Py_DecRef(type);
  return type;
}

/// Gives up references of a call. Where Python ends while a thread waits to go on, Python ends the thread, which
/// unwinds its stack through us: its objects are no longer the thread's to touch.
inline void release(PyObject *const *objects, size_t count) {
  if (!count || !Py_IsInitialized())
    return;
  for (size_t i = 0; i < count; ++i)
    Py_DecRef(objects[i]);
}

/// A strong reference, or null.
class Owned {
public:
  explicit Owned(PyObject *object) : object(object) {}
  Owned(const Owned &) = delete;
  Owned &operator=(const Owned &) = delete;
  ~Owned() noexcept(false) { trainkernel::release(&object, object ? 1 : 0); }
  static PyObject *share(PyObject *object) {
    Py_IncRef(object);
    return object;
  }
  explicit operator bool() const { return object; }
  PyObject *get() const { return object; }
  PyObject *release() {
    PyObject *released = object;
    object = nullptr;
    return released;
  }

private:
  PyObject *object;
};

/// An array of one call: on the stack unless it is large. Its elements are uninitialised.
template <typename T> class Scratch {
public:
  explicit Scratch(size_t count) {
    if (count > kInline)
      large.resize(count);
    values = count > kInline ? large.data() : small;
  }
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  T &operator[](size_t index) { return values[index]; }
  T *data() { return values; }
  const T *data() const { return values; }

private:
  static constexpr size_t kInline = 256;
  T small[kInline];
  std::vector<T> large;
  T *values;
};

/// Strong references to the tensors of one call, in order.
class References {
public:
  explicit References(size_t most) : objects(most) {}
  ~References() noexcept(false) { release(objects.data(), count); }
  /// Takes over a strong reference.
  void add(PyObject *owned) { objects[count++] = owned; }
  size_t size() const { return count; }
  PyObject *const *data() const { return objects.data(); }

private:
  Scratch<PyObject *> objects;
  size_t count = 0;
};

} // namespace trainkernel

#endif // TRAINKERNEL_LIB_RUNTIME_STABLEPYTHON_H
