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
  /// Whether it reads states that the step updates, and other arguments, and not only what other ops make.
  bool readsState = true, readsInputs = true;
  /// Bytes that the whole op reads and writes, and instructions that it takes; a contraction has its own.
  int64_t bytes = 0, work = 0;
  ContractionShape contraction;
  /// For a contraction: n is the last dimension of the results, and m the one before it.
  bool rowsLead = false;
  /// For a contraction: ops of the same number, unless that is -1, multiply their rows with the same operand.
  int sharedOperand = -1;
  /// Tile sizes that the user chose, as in OpPlan. Such an op is in no chain of rows.
  bool isFixed = false;
  ContractionTile fixedTile{1, 1, 1};
  Sizes fixedSizes;
  /// The CTA of the first tile that the user chose, or -1. Such an op is in no chain of rows, either.
  int64_t fixedCta = -1;

  bool isChosen() const { return isFixed || fixedCta >= 0; }
};

struct OpPlan {
  /// For a contraction, with the groups of threads that share out its k.
  ContractionTile tile{1, 1, 1};
  int64_t groups = 0;
  /// For any other op: tile sizes over the shape.
  Sizes sizes;
  int64_t tiles = 1;
  /// Of one tile, and the sum of that.
  TileCost cost;
  double tileTime = 0;
  int64_t firstCta = 0;
  /// For a contraction whose operand over n and k comes from arguments of the step, the part of a tile's time that
  /// bringing it in takes: it may begin before a barrier ends.
  double operandTime = 0;
  /// For one in rows that can keep that operand in shared memory: its bytes, and those that a tile needs beside.
  int64_t keptBytes = 0, ownBytes = 0;
};

/// What one of `busy` processors spends on one tile of `op`, cut as `plan` says. This is the cost model: all that is
/// said of times is made of it.
TileCost predictOp(const OpModel &op, const OpPlan &plan, const TargetFacts &target, int64_t busy);

/// Why code cannot be made for an op with its fixed tile sizes, or nothing. A GPU's shared memory is not looked at.
std::string findFault(const OpModel &op, const TargetFacts &target);

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
  TargetFacts factsFor(const RowBlocks &rows) const;
  std::optional<OpPlan> planRows(const OpModel &op, const RowBlocks &rows, const TargetFacts &target) const;
  std::optional<OpPlan> planRowContraction(const OpModel &op, const RowBlocks &rows, const TargetFacts &target) const;

  llvm::ArrayRef<OpModel> ops;
  const TargetFacts &target;
  /// The first op that is alike, for each op.
  llvm::SmallVector<unsigned> likeness;
  std::map<std::pair<unsigned, int64_t>, OpPlan> spread;
  std::map<std::tuple<unsigned, int64_t, int64_t>, std::optional<OpPlan>> rowwise;
};

} // namespace trainkernel

#endif
