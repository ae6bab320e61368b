//===- Chains.h - phases that stay on their CTAs ----------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_CHAINS_H
#define TRAINKERNEL_LIB_ANALYSIS_CHAINS_H

#include "lib/Analysis/TileGeometry.h"

namespace mlir::megakernel {

/// The CTAs that have the tiles of a tile op, one each: `count` from `firstCta` on.
struct TileCtas {
  int64_t firstCta, count;
  bool operator==(const TileCtas &other) const { return firstCta == other.firstCta && count == other.count; }
};

/// Nothing where CTAs have more tiles than one, or there are none.
std::optional<TileCtas> ctasOf(const TileGeometry &geometry, int64_t grid);

/// Phases with nothing but barriers of a CTA between them, all tile ops of which have their tiles on the same CTAs.
struct Chain {
  SmallVector<PhaseOp> phases;
  TileCtas ctas;
};

/// The longest ones, of two phases at least.
SmallVector<Chain> chainsOf(KernelOp kernel);

} // namespace mlir::megakernel

#endif
