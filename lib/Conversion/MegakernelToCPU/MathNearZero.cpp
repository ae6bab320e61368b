//===- MathNearZero.cpp - functions that are accurate near zero -----------===//

#include "lib/Conversion/MegakernelToCPU/WorkerContext.h"

#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/DialectConversion.h"

using namespace mlir;

// convert-math-to-llvm makes exp(x) - 1 and log(1 + x) of these two, which lose all digits near zero.
LogicalResult mlir::megakernel::lowerMathNearZero(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  populateMathToLibmConversionPatterns(patterns);
  ConversionTarget target(*module.getContext());
  target.addIllegalOp<math::ExpM1Op, math::Log1pOp>();
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  return applyPartialConversion(module, target, std::move(patterns));
}
