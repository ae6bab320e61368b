//===- MegakernelDialect.cpp - registration -------------------------------===//

#include "dialects/Megakernel/MegakernelDialect.h"

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
