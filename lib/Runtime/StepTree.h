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
  /// Arguments: a tuple that is kept, as Tuple. Results: the kept tuple at `index`, in the place of `children` leaves.
  Kept,
};

/// One structure. All objects are borrowed.
class Tree {
public:
  /// Adds a node before its children.
  void add(TreeKind kind, size_t children, PyObject *object, PyObject *helper, int64_t index);

  /// How many tuples are kept.
  size_t numKept() const;

  /// Adds the leaves and the kept tuples; whatever stands in the place of a leaf is taken for one. False where the tree
  /// does not certainly fit, without a Python exception.
  bool takeApart(PyObject *tree, References &leaves, References &kept) const;

  /// A tree of these leaves and tuples; null with a Python exception.
  PyObject *putTogether(PyObject *const *leaves, const References &kept) const;

private:
  struct Node {
    TreeKind kind;
    size_t children;
    PyObject *object, *helper;
    int64_t index;
    std::vector<PyObject *> keys;
  };

  /// Walks of one call.
  class Taker;
  class Maker;

  std::vector<Node> nodes; // In preorder.
};

} // namespace trainkernel

#endif // TRAINKERNEL_LIB_RUNTIME_STEPTREE_H
