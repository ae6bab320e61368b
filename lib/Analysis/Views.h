//===- Views.h - looking through reshapes -----------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_VIEWS_H
#define TRAINKERNEL_LIB_ANALYSIS_VIEWS_H

#include "mlir/IR/Value.h"

namespace mlir::megakernel {

/// The tensor that `value` is a reshape of, through any number of reshapes; `value` itself where it is none.
Value skipReshapes(Value value);

/// True where `value`, or a reshape of it, is a result of the step.
bool isReturned(Value value);

} // namespace mlir::megakernel

#endif
