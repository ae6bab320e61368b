//===- Memory.cpp - loads, stores and pointers under the emulator ---------===//

#include "lib/Conversion/NVVMToEmulator/EmulatorCalls.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"

using namespace mlir;
using namespace mlir::megakernel;

// The widest access of a thread in one go; wider ones are cut.
static constexpr uint64_t widestAccess = 16;

static bool isShared(Type type) {
  auto pointer = dyn_cast<LLVM::LLVMPointerType>(type);
  return pointer && pointer.getAddressSpace() == static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);
}

// The thread's own stack and constants need no check.
static bool isPrivate(Value pointer) {
  while (auto gep = pointer.getDefiningOp<LLVM::GEPOp>())
    pointer = gep.getBase();
  if (auto address = pointer.getDefiningOp<LLVM::AddressOfOp>())
    return !isShared(address.getType());
  return pointer.getDefiningOp<LLVM::AllocaOp>() != nullptr;
}

template <typename Access>
static FailureOr<int64_t> check(Access op, Type type, StringRef function, StringRef what, EmulatorCalls &calls) {
  if (op.getOrdering() != LLVM::AtomicOrdering::not_atomic)
    return op.emitError("is atomic, which the emulator does not know");
  if (isPrivate(op.getAddr()))
    return 0;
  // A vector's own elements: its size in the data layout is rounded up.
  auto vector = dyn_cast<VectorType>(type);
  uint64_t elementBytes = DataLayout::closest(op).getTypeSize(getElementTypeOrSelf(type));
  uint64_t bytes = elementBytes * (vector ? vector.getNumElements() : 1);
  uint64_t alignment = std::min(op.getAlignment().value_or(llvm::PowerOf2Ceil(bytes)), widestAccess);
  // The host would want more for vectors that are wider.
  op.setAlignment(alignment);
  Value site = calls.site(op, what);
  calls.call(op, function, Type(), {op.getAddr(), calls.constant(op, bytes), calls.constant(op, alignment), site});
  if (isa<LLVM::StoreOp>(op))
    calls.call(op->getNextNode(), "tk_emu_written", Type(), site);
  return static_cast<int64_t>(elementBytes);
}

FailureOr<int64_t> mlir::megakernel::emulateAccess(Operation *op, EmulatorCalls &calls) {
  if (auto load = dyn_cast<LLVM::LoadOp>(op))
    return check(load, load.getType(), "tk_emu_read", "load", calls);
  if (auto store = dyn_cast<LLVM::StoreOp>(op))
    return check(store, store.getValue().getType(), "tk_emu_write", "store", calls);
  return 0;
}

// Types keep their address space until all are replaced. Addresses in shared memory that are numbers count from the
// start of the CTA's, in 32 bits or in 64.
void mlir::megakernel::emulatePointer(Operation *op, EmulatorCalls &calls) {
  OpBuilder builder(op);
  Location loc = op->getLoc();
  Type i64 = builder.getI64Type();
  auto replace = [&](Value value) {
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
  };
  if (auto address = dyn_cast<LLVM::AddressOfOp>(op)) {
    if (isShared(address.getType()))
      replace(calls.call(op, "tk_emu_shared_memory", address.getType(), {}));
  } else if (auto cast = dyn_cast<LLVM::AddrSpaceCastOp>(op)) {
    replace(cast.getOperand());
  } else if (auto cast = dyn_cast<LLVM::PtrToIntOp>(op)) {
    if (!isShared(cast.getArg().getType()))
      return;
    Value number = calls.call(op, "tk_emu_shared_offset", i64, cast.getArg());
    bool isNarrow = cast.getType().isInteger(32);
    replace(isNarrow ? Value(LLVM::TruncOp::create(builder, loc, cast.getType(), number)) : number);
  } else if (auto cast = dyn_cast<LLVM::IntToPtrOp>(op)) {
    if (!isShared(cast.getType()))
      return;
    Value number = cast.getArg();
    if (number.getType() != i64)
      number = LLVM::ZExtOp::create(builder, loc, i64, number);
    replace(calls.call(op, "tk_emu_shared_pointer", cast.getType(), number));
  }
}
