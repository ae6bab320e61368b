//===- Views.cpp - looking through reshapes -------------------------------===//

#include "lib/Analysis/Views.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

Value mlir::megakernel::skipReshapes(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

bool mlir::megakernel::isReturned(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(user))
      return isReturned(user->getResult(0));
    return isa<ReturnOp>(user);
  });
}
