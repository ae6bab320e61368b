//===- BindOperands.cpp - where products find their operands --------------===//

#include "lib/Transforms/BindOperands/BindOperands.h"

#include "lib/Analysis/Chains.h"
#include "lib/Analysis/RowsOnChip.h"
#include "lib/Analysis/SharedSpace.h"
#include "lib/Analysis/TileGeometry.h"
#include "lib/Scheduling/TargetTable.h"

#include <array>
#include <map>

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKBINDOPERANDS
#include "lib/Transforms/BindOperands/BindOperands.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::Multiplier;

// Of a thread's 255, beside those that epilogues and pointwise ops need.
static constexpr int64_t maxHeldRegisters = 112;
// Fewer would hardly repay the loads of all fragments at once.
static constexpr size_t minUses = 3;

static bool isProduct(TileOp tile) {
  TileGeometry geometry(tile);
  return geometry.region.isContraction() && geometry.numTiles > 0 &&
         multiplierOf(geometry.region.reduction) == Multiplier::Narrow;
}

namespace {
/// Products of a chain that multiply with the same fragments, by the number of their phase.
struct Sharers {
  SmallVector<TileOp> tiles;
  size_t first, last;
};

struct BindOperandsPass : public megakernel::impl::TkBindOperandsBase<BindOperandsPass> {
  void runOnOperation() override {
    kernel = getOperation();
    std::optional<trainkernel::TargetFacts> target = trainkernel::findTarget(kernel.getTarget().value_or(""));
    if (!target || target->kind != trainkernel::TargetKind::Cuda)
      return;
    limit = target->sharedBytes;
    kernel.walk([&](TileOp tile) {
      if (!isProduct(tile))
        return;
      std::optional<int64_t> rows = findRowsOnChip(kernel, tile);
      if (rows && tryTo([&] { tile.setRowsAt(*rows); }, [&] { tile.removeRowsAtAttr(); }))
        ++numInPlace;
    });
    for (const Chain &chain : chainsOf(kernel))
      holdOperands(chain);
    kernel.setSharedBytes(sharedBytesOf(kernel, limit));
  }

private:
  // Products then have other layouts, which may need more room.
  bool tryTo(function_ref<void()> change, function_ref<void()> undo) {
    change();
    if (sharedBytesOf(kernel, limit) <= limit)
      return true;
    undo();
    return false;
  }

  void holdOperands(const Chain &chain) {
    std::map<std::array<int64_t, 5>, Sharers> groups;
    for (auto [number, phase] : llvm::enumerate(chain.phases))
      for (auto tile : PhaseOp(phase).getBody().front().getOps<TileOp>()) {
        if (!tile.getKeptAt() || !isProduct(tile))
          continue;
        ContractionPlan plan(TileGeometry(tile), kernel.getThreads());
        Sharers &sharers = groups
                               .try_emplace({*tile.getKeptAt(), plan.b.innerLoop == plan.kLoop, plan.sizeOf(plan.nLoop),
                                             plan.sizeOf(plan.kLoop), plan.sizeOf(plan.mLoop)},
                                            Sharers{{}, number, number})
                               .first->second;
        sharers.tiles.push_back(tile);
        sharers.last = number;
      }
    SmallVector<int64_t> inUse(chain.phases.size(), 0);
    for (auto &[key, sharers] : groups)
      if (sharers.tiles.size() >= minUses)
        hold(sharers, inUse);
  }

  void hold(const Sharers &sharers, MutableArrayRef<int64_t> inUse) {
    MutableArrayRef<int64_t> phases = inUse.slice(sharers.first, sharers.last - sharers.first + 1);
    int64_t registers = 0;
    auto change = [&] {
      for (TileOp tile : sharers.tiles) {
        tile.setInRegisters(true);
        registers = std::max(registers, ContractionPlan(TileGeometry(tile), kernel.getThreads()).registersOfB());
      }
    };
    auto undo = [&] {
      for (TileOp tile : sharers.tiles)
        tile.setInRegisters(false);
    };
    if (!tryTo(change, undo))
      return;
    if (registers + *llvm::max_element(phases) > maxHeldRegisters)
      return undo();
    for (int64_t &used : phases)
      used += registers;
    numHeld += sharers.tiles.size();
  }

  KernelOp kernel;
  int64_t limit = 0;
};
} // namespace
