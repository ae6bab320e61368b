//===- Chains.cpp - phases that stay on their CTAs ------------------------===//

#include "lib/Analysis/Chains.h"

using namespace mlir;
using namespace mlir::megakernel;

std::optional<TileCtas> mlir::megakernel::ctasOf(const TileGeometry &geometry, int64_t grid) {
  if (geometry.numTiles == 0 || geometry.numTiles > grid)
    return std::nullopt;
  TileOp tile = geometry.tile;
  return TileCtas{static_cast<int64_t>(tile.getFirstCta()) % grid, geometry.numTiles};
}

// The CTAs that all tile ops of a phase share.
static std::optional<TileCtas> commonCtasOf(PhaseOp phase, int64_t grid) {
  std::optional<TileCtas> common;
  for (auto tile : phase.getBody().front().getOps<TileOp>()) {
    std::optional<TileCtas> own = ctasOf(TileGeometry(tile), grid);
    if (!own || (common && !(*own == *common)))
      return std::nullopt;
    common = own;
  }
  return common;
}

SmallVector<Chain> mlir::megakernel::chainsOf(KernelOp kernel) {
  SmallVector<Chain> chains;
  bool isOpen = false;
  for (Operation &op : kernel.getBody().front()) {
    if (auto phase = dyn_cast<PhaseOp>(op)) {
      std::optional<TileCtas> ctas = commonCtasOf(phase, kernel.getGrid());
      if (!isOpen || !ctas || !(chains.back().ctas == *ctas))
        chains.push_back({{}, ctas.value_or(TileCtas{0, 0})});
      chains.back().phases.push_back(phase);
      isOpen = ctas.has_value();
    } else if (auto barrier = dyn_cast<BarrierOp>(op)) {
      isOpen &= barrier.getScope() == Scope::Cta;
    }
  }
  llvm::erase_if(chains, [](const Chain &chain) { return chain.phases.size() < 2; });
  return chains;
}
