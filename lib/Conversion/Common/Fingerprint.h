//===- Fingerprint.h - what a piece of code does ----------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_FINGERPRINT_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_FINGERPRINT_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::megakernel {

/// What a run of ops in one block does, and what it does it with.
struct Fingerprint {
  Fingerprint(Operation *first, Operation *last);

  /// Equal for code that differs only in `outside` and the values of `indices`. It holds addresses of attributes and
  /// types, which are unique.
  std::vector<uintptr_t> key;
  /// Operands that are defined elsewhere, and constant indices, in the order of the code.
  SmallVector<OpOperand *> outside;
  SmallVector<arith::ConstantIndexOp> indices;
  int64_t numOps = 0;
  /// The code can move: nothing else uses its results, and it has no jumps.
  bool isClosed = true;

private:
  void add(const void *unique) { key.push_back(reinterpret_cast<uintptr_t>(unique)); }
  void addNumber(size_t number) { key.push_back(number); }
  void addDefinitions(ValueRange values);
  void addOperand(OpOperand &operand);
  void addOperation(Operation &op);

  DenseMap<Value, size_t> inside;
  size_t usesSeen = 0, uses = 0;
};

} // namespace mlir::megakernel

#endif
