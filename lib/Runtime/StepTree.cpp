//===- StepTree.cpp - Trees of arguments and results ----------------------===//

#include "StepTree.h"

#include <algorithm>
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

void Tree::add(TreeKind kind, size_t children, PyObject *object, PyObject *helper, int64_t index) {
  Node node{kind, children, object, helper, index, {}};
  PyObject *key, *value;
  intptr_t position = 0;
  while (kind == TreeKind::Dict && PyDict_Next(object, &position, &key, &value))
    node.keys.push_back(key);
  nodes.push_back(std::move(node));
}

size_t Tree::numKept() const {
  return std::count_if(nodes.begin(), nodes.end(), [](const Node &node) { return node.kind == TreeKind::Kept; });
}

//===----------------------------------------------------------------------===//
// Taking apart
//===----------------------------------------------------------------------===//

class Tree::Taker {
public:
  Taker(const Tree &tree, References &leaves, References &kept) : next(tree.nodes.data()), leaves(leaves), kept(kept) {}

  bool visit(PyObject *tree) {
    const Node &node = *next++;
    switch (node.kind) {
    case TreeKind::Leaf:
      return leaves.add(Owned::share(tree)), true;
    case TreeKind::Constant:
      return isSame(node.object, tree, node.helper);
    case TreeKind::Dict:
      return visitDict(node, tree);
    case TreeKind::Other:
      return visitNamed(node, tree);
    case TreeKind::Kept:
      kept.add(Owned::share(tree));
      return visitItems(node, tree);
    default:
      return visitItems(node, tree);
    }
  }

private:
  bool visitChild(PyObject *child) {
    if (next->kind == TreeKind::Leaf)
      return ++next, leaves.add(Owned::share(child)), true;
    // The container is not ours: it may let go of the child meanwhile.
    Owned held(Owned::share(child));
    return visit(child);
  }

  bool visitDict(const Node &node, PyObject *tree) {
    PyObject *type = typeOf(tree);
    if ((type != typeOf(node.object) && type != node.helper) ||
        PyDict_Size(tree) != static_cast<intptr_t>(node.children))
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
      if (!visitChild(value))
        return false;
    }
    return true;
  }

  bool visitItems(const Node &node, PyObject *tree) {
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
      if (!visitChild(item))
        return false;
    }
    return true;
  }

  bool visitNamed(const Node &node, PyObject *tree) {
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
      if (!visit(PyList_GetItem(items.get(), i)))
        return false;
    return true;
  }

  const Node *next;
  References &leaves, &kept;
};

bool Tree::takeApart(PyObject *tree, References &leaves, References &kept) const {
  return Taker(*this, leaves, kept).visit(tree);
}

//===----------------------------------------------------------------------===//
// Putting together
//===----------------------------------------------------------------------===//

class Tree::Maker {
public:
  Maker(const Tree &tree, PyObject *const *leaves, const References &kept)
      : next(tree.nodes.data()), leaves(leaves), kept(kept) {}

  PyObject *make() {
    const Node &node = *next++;
    switch (node.kind) {
    case TreeKind::Leaf:
      return Owned::share(*leaves++);
    case TreeKind::Constant:
      return Owned::share(node.object);
    case TreeKind::Dict:
      return makeDict(node);
    case TreeKind::Kept:
      leaves += node.children;
      return Owned::share(kept.data()[node.index]);
    default:
      return makeItems(node);
    }
  }

private:
  PyObject *makeDict(const Node &node) {
    // A copy has its table at once; an empty dict would grow.
    Owned dict(PyDict_Copy(node.object));
    if (!dict)
      return nullptr;
    for (PyObject *key : node.keys) {
      Owned child(make());
      if (!child || PyDict_SetItem(dict.get(), key, child.get()) != 0)
        return nullptr;
    }
    return dict.release();
  }

  PyObject *makeItems(const Node &node) {
    bool isTuple = node.kind == TreeKind::Tuple;
    intptr_t count = static_cast<intptr_t>(node.children);
    Owned items(isTuple ? PyTuple_New(count) : PyList_New(count));
    if (!items)
      return nullptr;
    for (intptr_t i = 0; i < count; ++i) {
      PyObject *child = make();
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

  const Node *next;
  PyObject *const *leaves;
  const References &kept;
};

PyObject *Tree::putTogether(PyObject *const *leaves, const References &kept) const {
  return Maker(*this, leaves, kept).make();
}
