//===- MegakernelDialect.h - the megakernel dialect -------------*- C++ -*-===//
//
// Ops, attributes and enums of the dialect, in both of its forms.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_DIALECTS_MEGAKERNEL_MEGAKERNELDIALECT_H
#define TRAINKERNEL_DIALECTS_MEGAKERNEL_MEGAKERNELDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Megakernel/MegakernelDialect.h.inc"
#include "dialects/Megakernel/MegakernelEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Megakernel/MegakernelAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/Megakernel/MegakernelOps.h.inc"

#endif
