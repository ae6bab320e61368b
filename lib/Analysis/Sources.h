//===- Sources.h - what a value of a fused region is read from --*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_SOURCES_H
#define TRAINKERNEL_LIB_ANALYSIS_SOURCES_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::megakernel {

using Sources = llvm::SmallSetVector<Value, 4>;

/// The region arguments behind a tensor of a fused region that are at least about as large as it: what is read once per
/// element. What is much smaller is a bias or a scalar.
Sources sourcesOf(Value value);

/// Bytes that an element takes in memory, of the value itself and summed over several.
int64_t bytesPerElement(Value value);
int64_t bytesPerElement(const Sources &sources);

/// Bytes of the widest element among the sources, or of the value's own where it has none.
int64_t widestSourceBytes(Value value);

} // namespace mlir::megakernel

#endif
