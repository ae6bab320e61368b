//===- RolledCode.h - code that recurs in a row, as a loop ------*- C++ -*-===//
//
// The steps of a recurrence follow each other as the same code with other buffers. In a loop there is one copy of it to
// compile and to fetch, and what all rounds need can stay in registers, which no call lets it do.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_ROLLEDCODE_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_ROLLEDCODE_H

#include "mlir/IR/Operation.h"

namespace mlir::megakernel {

/// Ops of one block, from the first to the last.
struct CodeRun {
  Operation *first, *last;
};

void eraseRun(const CodeRun &run);

/// Makes loops of runs that recur. `runs` follow each other in their block; returns which of them are in no loop. What
/// differs between the rounds is computed from their number or read from a table, which is put before `kernel`.
SmallVector<size_t> rollCode(Operation *kernel, ArrayRef<CodeRun> runs);

} // namespace mlir::megakernel

#endif
