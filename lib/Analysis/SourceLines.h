//===- SourceLines.h - the user's lines of an op ----------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_SOURCELINES_H
#define TRAINKERNEL_LIB_ANALYSIS_SOURCELINES_H

#include "mlir/IR/Location.h"

#include <string>

namespace mlir::megakernel {

/// The lines that a location stands for, each once, in order: "step.py:7". Files go by their name alone, so that the
/// same step in another folder has the same ones.
SmallVector<std::string> sourceLines(Location location);

} // namespace mlir::megakernel

#endif
