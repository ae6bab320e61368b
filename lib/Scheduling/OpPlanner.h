//===- OpPlanner.h - how one op is cut into tiles ---------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_OPPLANNER_H
#define TRAINKERNEL_LIB_SCHEDULING_OPPLANNER_H

#include "lib/Scheduling/TileSizes.h"

#include <map>
#include <optional>

namespace trainkernel {

/// One op of a schedule, as the planner sees it.
struct OpModel {
  enum Kind { Pointwise, Reduction, Contraction } kind = Pointwise;
  /// The shape of the results, and elements reduced per result.
  Sizes shape;
  int64_t reduced = 1;
  bool reducesContiguous = false;
  /// Bytes that the whole op reads and writes.
  int64_t bytes = 0;
  ContractionShape contraction;
  /// For a contraction: n is the last dimension of the results, and m the one before it.
  bool rowsLead = false;
};

struct OpPlan {
  /// For a contraction.
  ContractionTile tile{1, 1, 1};
  /// For any other op: tile sizes over the shape.
  Sizes sizes;
  int64_t tiles = 1;
  double tileTime = 0;
  int64_t firstCta = 0;
};

/// Rows are what the leading dimensions of a shape count; each tile has `perTile` of `count` of them, whole.
struct RowBlocks {
  int64_t count = 0, perTile = 0;
  int64_t tiles() const { return count / perTile; }
  bool operator==(const RowBlocks &other) const { return count == other.count && perTile == other.perTile; }
};

/// Every number of rows that the leading dimensions of `shape` can be seen as, beyond one.
llvm::SmallVector<int64_t> rowCountsOf(llvm::ArrayRef<int64_t> shape);

/// Plans ops one by one, and remembers: a step has many ops alike, and each is planned again for each idea.
class OpPlanner {
public:
  OpPlanner(llvm::ArrayRef<OpModel> ops, const TargetFacts &target);

  /// The fastest tiles where `processors` CTAs work on op `op`.
  const OpPlan &onCtas(unsigned op, int64_t processors);
  /// The fastest tiles of whole rows, or nothing where the op cannot be cut like that.
  const std::optional<OpPlan> &inRows(unsigned op, const RowBlocks &rows);

private:
  std::optional<OpPlan> planRows(const OpModel &op, const RowBlocks &rows) const;
  std::optional<OpPlan> planRowContraction(const OpModel &op, const RowBlocks &rows) const;

  llvm::ArrayRef<OpModel> ops;
  const TargetFacts &target;
  /// The first op that is alike, for each op.
  llvm::SmallVector<unsigned> likeness;
  std::map<std::pair<unsigned, int64_t>, OpPlan> spread;
  std::map<std::tuple<unsigned, int64_t, int64_t>, std::optional<OpPlan>> rowwise;
};

} // namespace trainkernel

#endif
