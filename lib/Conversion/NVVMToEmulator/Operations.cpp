//===- Operations.cpp - what threads do together, and inline PTX ----------===//

#include "lib/Conversion/NVVMToEmulator/EmulatorCalls.h"

#include "lib/Conversion/MegakernelToGPU/InlinePTX.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::megakernel;

static void replace(Operation *op, Value value) {
  if (value)
    op->getResult(0).replaceAllUsesWith(value);
  op->erase();
}

static Value bitcast(Operation *op, Value value, Type type) {
  OpBuilder builder(op);
  return value.getType() == type ? value : Value(LLVM::BitcastOp::create(builder, op->getLoc(), type, value));
}

static LogicalResult refuse(Operation *op, StringRef what) {
  return op->emitOpError() << what << ", which the emulator does not know";
}

static LogicalResult emulateAsm(LLVM::InlineAsmOp op, EmulatorCalls &calls) {
  StringRef text = op.getAsmString();
  Type i32 = IntegerType::get(op.getContext(), 32);
  SmallVector<Value> arguments(op.getOperands());
  auto call = [&](StringRef function, StringRef what, Type result) {
    arguments.push_back(calls.site(op, what));
    replace(op, calls.call(op, function, result, arguments));
    return success();
  };
  if (text == ptx::gridArrive)
    return call("tk_emu_grid_arrive", "arrival at the grid's barrier", i32);
  if (text == ptx::gridWait)
    return call("tk_emu_grid_wait", "wait for the grid", Type());
  if (text == ptx::launchesWait)
    return call("tk_emu_launches_wait", "wait for earlier launches", Type());
  if (text == ptx::copiesWait)
    return call("tk_emu_copies_wait", "wait for asynchronous copies", Type());
  if (text == ptx::launchNext)
    return op.erase(), success();
  if (text == ptx::move)
    return replace(op, arguments.front()), success();
  return op.emitError() << "is the inline PTX '" << text << "', which the emulator does not know";
}

static LogicalResult emulateShuffle(NVVM::ShflOp op, EmulatorCalls &calls) {
  if (op.getReturnValueAndIsValid())
    return refuse(op, "returns whether its lane is valid");
  Type i32 = IntegerType::get(op.getContext(), 32);
  Value value = calls.call(op, "tk_emu_shuffle", i32,
                           {op.getThreadMask(), bitcast(op, op.getVal(), i32), op.getOffset(), op.getMaskAndClamp(),
                            calls.constant(op, static_cast<int32_t>(op.getKind())), calls.site(op, "shuffle")});
  replace(op, bitcast(op, value, op.getRes().getType()));
  return success();
}

static LogicalResult emulateLdMatrix(NVVM::LdMatrixOp op, EmulatorCalls &calls) {
  if (op.getEltType() != NVVM::LdStMatrixEltType::B16 || op.getShape().getM() != 8 || op.getShape().getN() != 8)
    return refuse(op, "has not 8x8 elements of 16 bits");
  Value results = calls.scratch(op).second;
  bool isTransposed = op.getLayout() == NVVM::MMALayout::col;
  calls.call(op, "tk_emu_ldmatrix", Type(),
             {op.getPtr(), calls.constant(op, op.getNum()), calls.constant(op, isTransposed), results,
              calls.site(op, "ldmatrix")});
  replace(op, calls.load(op, results, op.getRes().getType()));
  return success();
}

static LogicalResult emulateMma(NVVM::MmaOp op, EmulatorCalls &calls) {
  Type i32 = IntegerType::get(op.getContext(), 32), f32 = Float32Type::get(op.getContext());
  auto shape = op.getShape();
  auto a = op.getMultiplicandAPtxType(), b = op.getMultiplicandBPtxType();
  auto type = a ? *a : NVVM::MmaOp::inferOperandMMAType(op.getOperandA()[0].getType(), false);
  // As tk_emu_mma counts them.
  int32_t kind = type == NVVM::MMATypes::bf16   ? 0
                 : type == NVVM::MMATypes::f16  ? 1
                 : type == NVVM::MMATypes::tf32 ? 2
                                                : -1;
  bool isKnown = kind >= 0 && a == b && shape.getM() == 16 && shape.getN() == 8 &&
                 shape.getK() == (kind == 2 ? 8 : 16) && op.getLayoutA() == NVVM::MMALayout::row &&
                 op.getLayoutB() == NVVM::MMALayout::col &&
                 llvm::all_of(op.getOperandC().getTypes(), [&](Type type) { return type == f32; });
  if (!isKnown)
    return refuse(op, "is no product of bf16, f16 or tf32 of 16x8, accumulated in f32");
  SmallVector<Value> operands;
  for (Value operand : op.getOperands())
    operands.push_back(bitcast(op, operand, i32));
  auto [arguments, results] = calls.scratch(op);
  calls.store(op, arguments, operands);
  calls.call(op, "tk_emu_mma", Type(), {calls.constant(op, kind), arguments, results, calls.site(op, "mma")});
  replace(op, calls.load(op, results, op.getRes().getType()));
  return success();
}

static LogicalResult emulateCopy(NVVM::CpAsyncOp op, EmulatorCalls &calls) {
  if (op.getCpSize())
    return refuse(op, "copies fewer bytes than it writes");
  calls.call(op, "tk_emu_copy_async", Type(),
             {op.getDst(), op.getSrc(), calls.constant(op, op.getSize()), calls.site(op, "asynchronous copy")});
  op.erase();
  return success();
}

static LogicalResult emulateNVVM(Operation *op, EmulatorCalls &calls) {
  Type i32 = IntegerType::get(op->getContext(), 32), i64 = IntegerType::get(op->getContext(), 64);
  auto number = [&](StringRef function, Type type = Type()) {
    replace(op, calls.call(op, function, type ? type : i32, {}));
    return success();
  };
  auto meet = [&](StringRef function, StringRef what) {
    calls.call(op, function, Type(), calls.site(op, what));
    op->erase();
    return success();
  };
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](NVVM::ThreadIdXOp) { return number("tk_emu_thread"); })
      .Case([&](NVVM::BlockIdXOp) { return number("tk_emu_cta"); })
      .Case([&](NVVM::GlobalTimerOp) { return number("tk_emu_time", i64); })
      .Case([&](NVVM::Barrier0Op) { return meet("tk_emu_barrier", "barrier of the CTA"); })
      .Case([&](NVVM::ClusterArriveOp) { return meet("tk_emu_cluster_arrive", "arrival at the cluster's barrier"); })
      .Case([&](NVVM::ClusterWaitOp) { return meet("tk_emu_cluster_wait", "wait for the cluster"); })
      .Case([&](NVVM::ShflOp shuffle) { return emulateShuffle(shuffle, calls); })
      .Case([&](NVVM::LdMatrixOp matrix) { return emulateLdMatrix(matrix, calls); })
      .Case([&](NVVM::MmaOp product) { return emulateMma(product, calls); })
      .Case([&](NVVM::CpAsyncOp copy) { return emulateCopy(copy, calls); })
      .Default([](Operation *other) { return other->emitOpError("is not known to the emulator"); });
}

// Ops that touch memory, but for those that are checked, and ops of other dialects would run unchecked or not at all.
static bool isPlain(Operation *op) {
  if (!isa_and_nonnull<LLVM::LLVMDialect>(op->getDialect()))
    return false;
  if (isa<LLVM::LoadOp, LLVM::StoreOp, LLVM::AllocaOp, LLVM::CallOp, LLVM::CallIntrinsicOp>(op))
    return true;
  auto effects = dyn_cast<MemoryEffectOpInterface>(op);
  bool isPure = effects ? effects.hasNoEffect() : op->hasTrait<OpTrait::IsTerminator>();
  return isPure || op->hasTrait<OpTrait::IsTerminator>() ||
         isa<LLVM::AddressOfOp, LLVM::LLVMFuncOp, LLVM::GlobalOp>(op);
}

LogicalResult mlir::megakernel::emulate(Operation *op, EmulatorCalls &calls) {
  if (isa_and_nonnull<NVVM::NVVMDialect>(op->getDialect()))
    return emulateNVVM(op, calls);
  if (auto text = dyn_cast<LLVM::InlineAsmOp>(op))
    return emulateAsm(text, calls);
  if (isPlain(op))
    return emulateFloats(op, calls);
  return op->emitOpError("is not known to the emulator");
}
