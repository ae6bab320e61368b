//===- Barrier.cpp - barriers by scope ------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"
#include "lib/Conversion/MegakernelToGPU/InlinePTX.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::megakernel;

// The workspace's pointer. An index would not do: it may have 32 bits in the kernel. The cast is to what buffers of one
// dimension become when they are lowered, and folds with that.
static Value workspacePointer(const CtaContext &cta, Location loc) {
  OpBuilder &builder = cta.builder;
  MLIRContext *context = builder.getContext();
  Type pointer = LLVM::LLVMPointerType::get(context), index = IntegerType::get(context, cta.indexBits);
  Type indices = LLVM::LLVMArrayType::get(index, 1);
  auto descriptor = LLVM::LLVMStructType::getLiteral(context, {pointer, pointer, index, indices, indices});
  Value lowered = UnrealizedConversionCastOp::create(builder, loc, descriptor, cta.workspace).getResult(0);
  return LLVM::ExtractValueOp::create(builder, loc, lowered, 1);
}

Value mlir::megakernel::computeAgain(const CtaContext &context, Location loc, Value index) {
  OpBuilder &builder = context.builder;
  Type i32 = builder.getI32Type();
  Value number = arith::IndexCastUIOp::create(builder, loc, i32, index);
  number = ptx::emit(builder, loc, i32, number, ptx::move, "=r,r").getResult(0);
  return arith::IndexCastUIOp::create(builder, loc, builder.getIndexType(), number);
}

void mlir::megakernel::emitEarlierLaunchesWait(const CtaContext &context, Location loc) {
  // As text, since the intrinsics do not say that memory changes meanwhile.
  ptx::emit(context.builder, loc, {}, {}, ptx::launchesWait, "~{memory}");
  ptx::emit(context.builder, loc, {}, {}, ptx::launchNext, "~{memory}");
}

void mlir::megakernel::emitCopiesWait(const CtaContext &context, Location loc) {
  ptx::emit(context.builder, loc, {}, {}, ptx::copiesWait, "~{memory}");
}

// The first thread of each CTA adds to one counter and waits until its sign flips. CTA 0 adds 2^31 - (n - 1) and
// the others 1, so a full round adds 2^31 and the counter needs no reset, neither in a launch nor between launches.
// Inline PTX because a release on llvm.atomicrmw does not survive to PTX (measured with LLVM 22).
//
// The result is what the first thread's counter showed when the CTA arrived.
static Value emitGridArrival(const CtaContext &context, Location loc) {
  OpBuilder &builder = context.builder;
  IndexMath math = context.math(loc);
  context.barrier(loc);
  Value zero = math.constant(0);
  Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, context.thread, zero);
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(static_cast<int32_t>(value)));
  };
  Type i32 = builder.getI32Type();
  auto arrival = scf::IfOp::create(builder, loc, i32, isFirst, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(arrival.elseBlock());
  scf::YieldOp::create(builder, loc, constant(0));
  builder.setInsertionPointToStart(arrival.thenBlock());
  Value isCta0 = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, context.cta, zero);
  Value amount =
      arith::SelectOp::create(builder, loc, isCta0, constant((int64_t(1) << 31) - (context.grid - 1)), constant(1));
  Value counter = workspacePointer(context, loc);
  scf::YieldOp::create(
      builder, loc, ptx::emit(builder, loc, i32, {counter, amount}, ptx::gridArrive, "=r,l,r,~{memory}").getResults());
  return arrival.getResult(0);
}

static void emitGridWait(const CtaContext &context, Location loc, Value arrival) {
  OpBuilder &builder = context.builder;
  Value isFirst =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, context.thread, context.math(loc).constant(0));
  (void)context.when(loc, isFirst, [&] {
    Value counter = workspacePointer(context, loc);
    ptx::emit(builder, loc, TypeRange(), {counter, arrival}, ptx::gridWait, "l,r,~{memory}");
    return success();
  });
  context.barrier(loc);
}

Type mlir::megakernel::arrivalType(const CtaContext &context, Scope scope) {
  return scope == Scope::Grid ? context.builder.getI32Type() : Type();
}

Value mlir::megakernel::emitArrival(const CtaContext &context, Location loc, Scope scope) {
  switch (scope) {
  case Scope::Cta:
    context.barrier(loc);
    return nullptr;
  case Scope::Cluster:
    NVVM::ClusterArriveOp::create(context.builder, loc, context.builder.getUnitAttr());
    return nullptr;
  case Scope::Grid:
    return emitGridArrival(context, loc);
  }
  return nullptr;
}

void mlir::megakernel::emitWait(const CtaContext &context, Location loc, Scope scope, Value arrival) {
  if (scope == Scope::Cluster)
    NVVM::ClusterWaitOp::create(context.builder, loc, context.builder.getUnitAttr());
  if (scope == Scope::Grid)
    emitGridWait(context, loc, arrival);
}
