//===- KeepRounding.cpp - no conversion may be left out -------------------===//

#include "lib/Transforms/KeepRounding/KeepRounding.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKKEEPROUNDING
#include "lib/Transforms/KeepRounding/KeepRounding.h.inc"
} // namespace mlir::megakernel

using namespace mlir;

namespace {
struct KeepRoundingPass : public megakernel::impl::TkKeepRoundingBase<KeepRoundingPass> {
  void runOnOperation() override {
    auto none = arith::FastMathFlagsAttr::get(&getContext(), arith::FastMathFlags::none);
    getOperation()->walk([&](arith::ArithFastMathInterface op) {
      // Flags of conversions are optional, those of arithmetic have a default.
      if (isa<CastOpInterface>(op.getOperation()))
        op->removeAttr(op.getFastMathAttrName());
      else
        op->setAttr(op.getFastMathAttrName(), none);
    });
  }
};
} // namespace
