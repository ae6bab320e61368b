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

namespace mlir::megakernel {

/// The element types that tensors of a step and buffers of a kernel may have.
bool isElementType(Type type);

/// The index in an attribute such as `megakernel.updates`; nothing where it is no index of an argument.
std::optional<unsigned> argumentIndex(Attribute attribute);

/// The argument or `megakernel.buffer` that a buffer value is a view of.
Value rootOfBuffer(Value buffer);

} // namespace mlir::megakernel

#endif
