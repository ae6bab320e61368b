//===- FusionPlan.h - which ops are computed together -----------*- C++ -*-===//
//
// Decides, for the linalg ops of a step, which of them share a fused region. Every reduction is the root of a
// group of its own. A pointwise op is one of three things:
//
//   - a member of the epilogue of the one group whose tiles it can be computed on,
//   - lazy: computed again inside every group that reads it, as part of that group's prologue; not where that is
//     costly and a product would do it for each of its tiles,
//   - the root of a group of its own.
//
// Lazy ops never reach memory, and neither do epilogue values that only their own group reads.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_FUSIONPLAN_H
#define TRAINKERNEL_LIB_ANALYSIS_FUSIONPLAN_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::megakernel {

struct FusionGroup {
  /// The reduction or first pointwise op, and its epilogue, in program order.
  SmallVector<Operation *> ops;
  /// Groups whose values this one reads.
  llvm::SetVector<unsigned> predecessors;
  /// The shape of every value that the group may yield.
  SmallVector<int64_t> shape;
};

class FusionPlan {
public:
  explicit FusionPlan(StepOp step);

  ArrayRef<FusionGroup> getGroups() const { return groups; }
  /// The group whose member defines `value`, or nothing for arguments, constants, views and lazy ops.
  std::optional<unsigned> groupOf(Value value) const;
  /// Groups in an order in which each comes after its predecessors.
  SmallVector<unsigned> topologicalOrder() const;

private:
  void place(linalg::GenericOp op);
  std::optional<unsigned> findEpilogue(linalg::GenericOp op, const llvm::SetVector<unsigned> &reads) const;
  bool mayBeLazy(linalg::GenericOp op) const;
  unsigned addGroup(linalg::GenericOp op, const llvm::SetVector<unsigned> &reads);
  void collectGroups(Value value, llvm::SetVector<unsigned> &into) const;
  bool dependsOn(unsigned group, unsigned other) const;
  void demoteRecomputable(unsigned group);
  void keepCostlyOperands(linalg::GenericOp op);
  void recordLazy(linalg::GenericOp op);
  int64_t costIfLazy(linalg::GenericOp op) const;
  int64_t lazyCost(Value value) const;

  SmallVector<FusionGroup> groups;
  DenseMap<Operation *, unsigned> groupOfOp;
  DenseMap<Operation *, int64_t> costOfLazy;
};

} // namespace mlir::megakernel

#endif
