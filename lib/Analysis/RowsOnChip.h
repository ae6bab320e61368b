//===- RowsOnChip.h - rows that a CTA has as they are multiplied -*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_ROWSONCHIP_H
#define TRAINKERNEL_LIB_ANALYSIS_ROWSONCHIP_H

#include "dialects/Megakernel/MegakernelDialect.h"

namespace mlir::megakernel {

/// The byte of shared memory from which on the rows of a contraction's tile follow each other as they are multiplied;
/// nothing where they lie elsewhere, or are computed from what lies there.
std::optional<int64_t> findRowsOnChip(KernelOp kernel, TileOp tile);

} // namespace mlir::megakernel

#endif
