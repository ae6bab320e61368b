//===- StepTree.h - Trees of arguments and results ------------------------===//
//
// What trainkernel.runtime.structure does in Python: takes the arguments of a
// step apart into tensors, and makes its result of tensors. A tree is only ever
// found to fit, or left to Python to look closer at. Nothing is remembered of a
// caller's containers.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_RUNTIME_STEPTREE_H
#define TRAINKERNEL_LIB_RUNTIME_STEPTREE_H

#include "StablePython.h"

namespace trainkernel {

/// trainkernel.runtime.native knows these numbers.
enum class TreeKind : int32_t {
  Leaf,
  /// `object` is the value, `helper` the type float.
  Constant,
  /// `object` is a dict of the keys, in order; `helper` another type that is taken for a dict.
  Dict,
  /// `helper` is the type.
  List,
  Tuple,
  /// Arguments: a namedtuple, whose type `helper` has under `object`. Results: what `helper` makes of a list.
  Other,
};

/// One structure. All objects are borrowed.
class Tree {
public:
  /// Adds a node before its children.
  void add(TreeKind kind, size_t children, PyObject *object, PyObject *helper);

  /// Adds the leaves; whatever stands in the place of a leaf is taken for one. False where the tree does not certainly
  /// fit, without a Python exception.
  bool takeApart(PyObject *tree, References &leaves) const;

  /// A tree of these leaves; null with a Python exception.
  PyObject *putTogether(PyObject *const *leaves) const;

private:
  struct Node {
    TreeKind kind;
    size_t children;
    PyObject *object, *helper;
    std::vector<PyObject *> keys;
  };

  bool visit(size_t &at, PyObject *tree, References &leaves) const;
  bool visitDict(size_t &at, const Node &node, PyObject *tree, References &leaves) const;
  bool visitItems(size_t &at, const Node &node, PyObject *tree, References &leaves) const;
  bool visitNamed(size_t &at, const Node &node, PyObject *tree, References &leaves) const;
  PyObject *make(size_t &at, PyObject *const *&leaves) const;
  PyObject *makeDict(size_t &at, const Node &node, PyObject *const *&leaves) const;
  PyObject *makeItems(size_t &at, const Node &node, PyObject *const *&leaves) const;

  std::vector<Node> nodes; // In preorder.
};

} // namespace trainkernel

#endif // TRAINKERNEL_LIB_RUNTIME_STEPTREE_H
