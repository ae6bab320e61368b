//===- KeepOperands.cpp - operands that stay in shared memory -------------===//

#include "lib/Transforms/KeepOperands/KeepOperands.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KeptOperands.h"
#include "lib/Analysis/SharedSpace.h"
#include "lib/Scheduling/TargetTable.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKKEEPOPERANDS
#include "lib/Transforms/KeepOperands/KeepOperands.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
/// Tile ops that want the same operand.
struct Sharers {
  OperandContent content;
  SmallVector<TileOp> tiles;
  int64_t saved() const { return content.bytes * (static_cast<int64_t>(tiles.size()) - 1); }
};

struct KeepOperandsPass : public megakernel::impl::TkKeepOperandsBase<KeepOperandsPass> {
  void runOnOperation() override {
    kernel = getOperation();
    std::optional<trainkernel::TargetFacts> target = trainkernel::findTarget(kernel.getTarget().value_or(""));
    if (!target || target->kind != trainkernel::TargetKind::Cuda)
      return;
    SmallVector<Sharers> all = collect();
    llvm::stable_sort(all, [](const Sharers &a, const Sharers &b) { return a.saved() > b.saved(); });
    int64_t next = 0;
    for (const Sharers &sharers : all) {
      if (sharers.tiles.size() < 2)
        continue;
      keep(sharers, next);
      if (sharedBytesOf(kernel, target->sharedBytes) <= target->sharedBytes) {
        next = llvm::alignTo(next + sharers.content.bytes, 16);
        numReused += sharers.tiles.size() - 1;
      } else {
        release(sharers);
      }
    }
    kernel.setSharedBytes(sharedBytesOf(kernel, target->sharedBytes));
  }

private:
  // Groups of tile ops of different phases, none of which comes after a write to what the operand is computed from.
  SmallVector<Sharers> collect() {
    SmallVector<Sharers> all;
    llvm::SetVector<Value> written;
    for (auto phase : kernel.getBody().front().getOps<PhaseOp>()) {
      for (auto tile : phase.getBody().front().getOps<TileOp>())
        for (Value argument : kernel.getArguments())
          if (mayWrite(kernel, tile, argument))
            written.insert(argument);
      for (auto tile : phase.getBody().front().getOps<TileOp>())
        if (std::optional<OperandContent> content = contentToKeep(kernel, tile))
          if (llvm::none_of(content->sources, [&](Value source) { return written.contains(source); }))
            add(all, *content, tile);
    }
    return all;
  }

  static void add(SmallVector<Sharers> &all, const OperandContent &content, TileOp tile) {
    for (Sharers &sharers : all) {
      if (!sharers.content.isSame(content))
        continue;
      // Two of one phase would stage at once.
      if (sharers.tiles.back()->getParentOp() != tile->getParentOp())
        sharers.tiles.push_back(tile);
      return;
    }
    all.push_back({content, {tile}});
  }

  static void keep(const Sharers &sharers, int64_t at) {
    for (auto [index, tile] : llvm::enumerate(sharers.tiles)) {
      TileOp(tile).setKeptAt(at);
      TileOp(tile).setReusesKept(index > 0);
    }
  }

  static void release(const Sharers &sharers) {
    for (TileOp tile : sharers.tiles) {
      tile.removeKeptAtAttr();
      tile.setReusesKept(false);
    }
  }

  KernelOp kernel;
};
} // namespace
