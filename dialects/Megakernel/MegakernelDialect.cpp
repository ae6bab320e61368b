//===- MegakernelDialect.cpp - registration -------------------------------===//

#include "dialects/Megakernel/MegakernelDialect.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::megakernel;

#include "dialects/Megakernel/MegakernelDialect.cpp.inc"
#include "dialects/Megakernel/MegakernelEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Megakernel/MegakernelAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/Megakernel/MegakernelOps.cpp.inc"

void MegakernelDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Megakernel/MegakernelAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Megakernel/MegakernelOps.cpp.inc"
      >();
}

bool mlir::megakernel::isElementType(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type))
    return integer.isSignless() && llvm::is_contained({1u, 8u, 16u, 32u, 64u}, integer.getWidth());
  return isa<Float64Type, Float32Type, BFloat16Type, Float16Type>(type);
}

std::optional<unsigned> mlir::megakernel::argumentIndex(Attribute attribute) {
  auto integer = dyn_cast_or_null<IntegerAttr>(attribute);
  if (!integer || integer.getValue().isNegative() || integer.getValue().getActiveBits() > 31)
    return std::nullopt;
  return integer.getValue().getZExtValue();
}

Value mlir::megakernel::rootOfBuffer(Value buffer) {
  while (Operation *op = buffer.getDefiningOp()) {
    if (!isa<memref::ExpandShapeOp, memref::CollapseShapeOp>(op))
      break;
    buffer = op->getOperand(0);
  }
  return buffer;
}
