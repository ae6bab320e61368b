//===- SharedBodies.h - one function for code that recurs -------*- C++ -*-===//
//
// The steps of a recurrence and the layers of a deep network are emitted as the same code with other buffers. All in
// one function, each copy would be compiled on its own, with the user waiting; so code that recurs becomes a function
// that is called with the buffers.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_SHAREDBODIES_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_SHAREDBODIES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <list>

namespace mlir::megakernel {

/// Knows what was emitted for what, and shares it once all is there. Two pieces of code are alike where they differ
/// only in values from outside of them and in a few constant indices.
class SharedBodies {
public:
  /// What the target wants of functions.
  struct Needs {
    /// Where buffers are, unless null.
    Attribute bufferSpace;
    /// LLVM's attributes.
    SmallVector<StringRef> attributes;
  };

  /// Functions are named `name` and a number. A kernel of up to `smallKernel` ops keeps all its code.
  SharedBodies(StringRef name, int64_t smallKernel, const Needs &needs = {})
      : name(name.str()), smallKernel(smallKernel), needs(needs) {}

  /// Runs `emit`, which adds ops where `builder` is. What it adds is a part, which may be shared as a whole;
  /// parts that are recorded meanwhile may be shared where the whole is not.
  LogicalResult record(OpBuilder &builder, function_ref<LogicalResult()> emit);

  /// Records the steps of a recurrence, each of which is a part that is recorded meanwhile; they follow each other in
  /// one block. Where they are alike they become a loop. With `holdsValues` they have values in common that a call
  /// would write to memory, so that no step is called.
  LogicalResult recordSteps(OpBuilder &builder, bool holdsValues, function_ref<LogicalResult()> emit);

  /// Replaces parts that are alike by calls, where that pays. `kernel` is the function that has all parts; the new ones
  /// are put before it and returned.
  SmallVector<func::FuncOp> share(Operation *kernel);

private:
  struct Part {
    /// Null where nothing was emitted.
    Operation *first = nullptr, *last = nullptr;
    std::list<Part> inner;
    bool hasSteps = false, holdsValues = false;
  };
  struct Group;
  struct Uses;
  class Parameters;

  static SmallVector<Part *> filled(std::list<Part> &parts);
  static void rollSteps(Operation *kernel, Part &part);
  static std::vector<Group> groupsOf(ArrayRef<Part *> parts, bool withSameIndices);
  static Uses usesOf(const Group &group, Parameters &parameters);
  void shareParts(Operation *kernel, ArrayRef<Part *> parts);
  func::FuncOp outline(Operation *kernel, const Group &group);
  func::FuncOp createFunction(Operation *kernel, Location loc, ArrayRef<Type> types);
  static void moveBody(const Group &group, const Uses &uses, func::FuncOp function);
  Type passedType(Type type) const;

  std::string name;
  int64_t smallKernel;
  Needs needs;
  std::list<Part> parts;
  std::list<Part> *current = &parts;
  SmallVector<func::FuncOp> functions;
};

} // namespace mlir::megakernel

#endif
