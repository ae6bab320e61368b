//===- RegionSyntax.h - shared assembly syntax ------------------*- C++ -*-===//
//
// `(%inner = %outer : type, ...)`: operands bound to region arguments, shared by `fused` and `tile`.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_DIALECTS_MEGAKERNEL_REGIONSYNTAX_H
#define TRAINKERNEL_DIALECTS_MEGAKERNEL_REGIONSYNTAX_H

#include "mlir/IR/OpImplementation.h"

namespace mlir::megakernel {

/// Parses a parenthesised binding list. Types are the operands'; the region arguments get none yet.
ParseResult parseBindings(OpAsmParser &parser, SmallVectorImpl<OpAsmParser::Argument> &arguments,
                          SmallVectorImpl<OpAsmParser::UnresolvedOperand> &operands, SmallVectorImpl<Type> &types);

/// Prints a parenthesised binding list.
void printBindings(OpAsmPrinter &printer, Block::BlockArgListType arguments, OperandRange operands);

} // namespace mlir::megakernel

#endif
