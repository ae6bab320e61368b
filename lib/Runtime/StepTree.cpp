//===- StepTree.cpp - Trees of arguments and results ----------------------===//

#include "StepTree.h"

#include <cstring>

using namespace trainkernel;

namespace {

constexpr int kEqual = 2; // Py_EQ

/// An equal value of the same type; of the same bits, too, if it is a float: -0.0 == 0.0, and NaN is not itself.
bool isSame(PyObject *wanted, PyObject *given, PyObject *floatType) {
  PyObject *type = typeOf(wanted);
  if (typeOf(given) != type)
    return false;
  if (type == floatType) {
    double a = PyFloat_AsDouble(wanted), b = PyFloat_AsDouble(given);
    return !std::memcmp(&a, &b, sizeof(a));
  }
  int answer = PyObject_RichCompareBool(wanted, given, kEqual);
  if (answer < 0)
    PyErr_Clear();
  return answer == 1;
}

/// Whether a key is the wanted one; none of Python's code runs.
bool isKey(PyObject *wanted, PyObject *given) {
  if (wanted == given)
    return true;
  return typeOf(wanted) == typeOf(given) && PyObject_RichCompareBool(wanted, given, kEqual) == 1;
}

/// Whether all keys of a dict have types that are among those of the wanted keys: True == 1, but is another key.
bool haveTypesOf(const std::vector<PyObject *> &wanted, PyObject *dict) {
  PyObject *key, *value;
  intptr_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value)) {
    bool found = false;
    for (size_t i = 0; !found && i < wanted.size(); ++i)
      found = typeOf(wanted[i]) == typeOf(key);
    if (!found)
      return false;
  }
  return true;
}

/// The value of an equal key, borrowed, or null without an exception.
PyObject *lookUp(PyObject *dict, PyObject *key) {
  PyObject *value = PyDict_GetItemWithError(dict, key);
  if (!value)
    PyErr_Clear();
  return value;
}

} // namespace

void Tree::add(TreeKind kind, size_t children, PyObject *object, PyObject *helper) {
  Node node{kind, children, object, helper, {}};
  PyObject *key, *value;
  intptr_t position = 0;
  while (kind == TreeKind::Dict && PyDict_Next(object, &position, &key, &value))
    node.keys.push_back(key);
  nodes.push_back(std::move(node));
}

bool Tree::takeApart(PyObject *tree, References &leaves) const {
  size_t at = 0;
  return visit(at, tree, leaves);
}

bool Tree::visit(size_t &at, PyObject *tree, References &leaves) const {
  const Node &node = nodes[at++];
  switch (node.kind) {
  case TreeKind::Leaf:
    return leaves.add(Owned::share(tree)), true;
  case TreeKind::Constant:
    return isSame(node.object, tree, node.helper);
  case TreeKind::Dict:
    return visitDict(at, node, tree, leaves);
  case TreeKind::Other:
    return visitNamed(at, node, tree, leaves);
  default:
    return visitItems(at, node, tree, leaves);
  }
}

bool Tree::visitDict(size_t &at, const Node &node, PyObject *tree, References &leaves) const {
  PyObject *type = typeOf(tree);
  if ((type != typeOf(node.object) && type != node.helper) || PyDict_Size(tree) != static_cast<intptr_t>(node.children))
    return false;
  // Most often the keys come in order, and are even the same objects, as those of a result that is passed back.
  bool inOrder = true;
  intptr_t position = 0;
  for (PyObject *wanted : node.keys) {
    PyObject *key = nullptr, *value = nullptr;
    if (inOrder && (!PyDict_Next(tree, &position, &key, &value) || !isKey(wanted, key))) {
      inOrder = false;
      if (!haveTypesOf(node.keys, tree))
        return false;
    }
    if (!inOrder && !(value = lookUp(tree, wanted)))
      return false;
    // The dict is not ours: it may let go of the child meanwhile.
    Owned child(Owned::share(value));
    if (!visit(at, child.get(), leaves))
      return false;
  }
  return true;
}

bool Tree::visitItems(size_t &at, const Node &node, PyObject *tree, References &leaves) const {
  if (typeOf(tree) != node.helper)
    return false;
  bool isList = node.kind == TreeKind::List;
  intptr_t count = static_cast<intptr_t>(node.children);
  if ((isList ? PyList_Size(tree) : PyTuple_Size(tree)) != count)
    return false;
  for (intptr_t i = 0; i < count; ++i) {
    PyObject *item = isList ? PyList_GetItem(tree, i) : PyTuple_GetItem(tree, i);
    if (!item)
      return PyErr_Clear(), false;
    Owned child(Owned::share(item));
    if (!visit(at, child.get(), leaves))
      return false;
  }
  return true;
}

bool Tree::visitNamed(size_t &at, const Node &node, PyObject *tree, References &leaves) const {
  if (typeOf(tree) != lookUp(node.helper, node.object))
    return false;
  // As Python iterates: its class may say how.
  Owned items(PySequence_List(tree));
  if (!items)
    return PyErr_Clear(), false;
  intptr_t count = static_cast<intptr_t>(node.children);
  if (PyList_Size(items.get()) != count)
    return false;
  for (intptr_t i = 0; i < count; ++i)
    if (!visit(at, PyList_GetItem(items.get(), i), leaves))
      return false;
  return true;
}

PyObject *Tree::putTogether(PyObject *const *leaves) const {
  size_t at = 0;
  return make(at, leaves);
}

PyObject *Tree::make(size_t &at, PyObject *const *&leaves) const {
  const Node &node = nodes[at++];
  switch (node.kind) {
  case TreeKind::Leaf:
    return Owned::share(*leaves++);
  case TreeKind::Constant:
    return Owned::share(node.object);
  case TreeKind::Dict:
    return makeDict(at, node, leaves);
  default:
    return makeItems(at, node, leaves);
  }
}

PyObject *Tree::makeDict(size_t &at, const Node &node, PyObject *const *&leaves) const {
  // A copy has its table at once; an empty dict would grow.
  Owned dict(PyDict_Copy(node.object));
  if (!dict)
    return nullptr;
  for (PyObject *key : node.keys) {
    Owned child(make(at, leaves));
    if (!child || PyDict_SetItem(dict.get(), key, child.get()) != 0)
      return nullptr;
  }
  return dict.release();
}

PyObject *Tree::makeItems(size_t &at, const Node &node, PyObject *const *&leaves) const {
  bool isTuple = node.kind == TreeKind::Tuple;
  intptr_t count = static_cast<intptr_t>(node.children);
  Owned items(isTuple ? PyTuple_New(count) : PyList_New(count));
  if (!items)
    return nullptr;
  for (intptr_t i = 0; i < count; ++i) {
    PyObject *child = make(at, leaves);
    if (!child)
      return nullptr;
    // Both take the child over.
    if ((isTuple ? PyTuple_SetItem(items.get(), i, child) : PyList_SetItem(items.get(), i, child)) != 0)
      return nullptr;
  }
  if (node.kind != TreeKind::Other)
    return items.release();
  PyObject *list = items.get();
  return PyObject_Vectorcall(node.helper, &list, 1, nullptr);
}
