//===- Operations.cpp - what threads do together, and inline PTX ----------===//

#include "lib/Conversion/NVVMToEmulator/EmulatorCalls.h"

#include "lib/Conversion/MegakernelToGPU/InlinePTX.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Regex.h"

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

// An instruction of a warpgroup that changes its accumulators; what `changes` calls finds them in memory.
static LogicalResult changeAccumulators(LLVM::InlineAsmOp op, int64_t count, EmulatorCalls &calls,
                                        function_ref<void(Value registers)> changes) {
  if (count > EmulatorCalls::maxResults)
    return op.emitError() << "has " << count << " accumulators, which the emulator does not know";
  Value registers = calls.scratch(op).second;
  calls.store(op, registers, op.getOperands().take_front(count));
  changes(registers);
  replace(op, calls.load(op, registers, op.getResult(0).getType()));
  return success();
}

// "wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T {accumulators}, a, b, adds, 1, 1, A, B;", which adds.
static LogicalResult emulateWarpgroupProduct(LLVM::InlineAsmOp op, EmulatorCalls &calls) {
  static llvm::Regex pattern("setp\\.eq\\.u32 adds, 0, 0;.wgmma\\.mma_async\\.sync\\.aligned\\.m64n([0-9]+)k16\\."
                             "f32\\.(bf16\\.bf16|f16\\.f16) \\{[^}]*\\}, [$][0-9]+, [$][0-9]+, adds, 1, 1, "
                             "([01]), ([01]);");
  SmallVector<StringRef> parts;
  int64_t columns;
  if (!pattern.match(op.getAsmString(), &parts) || parts[1].getAsInteger(10, columns))
    return op.emitError() << "is the inline PTX '" << op.getAsmString() << "', which the emulator does not know";
  int32_t kind = (parts[2] == "f16.f16") + 2 * (parts[3] == "1") + 4 * (parts[4] == "1");
  OperandRange descriptors = op.getOperands().drop_front(columns / 2);
  return changeAccumulators(op, columns / 2, calls, [&](Value registers) {
    calls.call(op, "tk_emu_warpgroup_product", Type(),
               {registers, calls.constant(op, columns), calls.constant(op, kind), descriptors[0], descriptors[1],
                calls.site(op, "product of a warpgroup")});
  });
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
  if (text == ptx::warpgroupCommit)
    return call("tk_emu_warpgroup_commit", "end of a group of products", Type());
  if (text == ptx::warpgroupFence) {
    calls.call(op, "tk_emu_warpgroup_fence", Type(), calls.site(op, "fence of accumulators"));
    return replace(op, calls.pack(op, op.getResult(0).getType(), arguments)), success();
  }
  if (text == ptx::warpgroupWait)
    return changeAccumulators(op, arguments.size(), calls, [&](Value registers) {
      calls.call(op, "tk_emu_warpgroup_wait", Type(),
                 {registers, calls.constant(op, arguments.size()), calls.site(op, "wait for products")});
    });
  if (text.contains("wgmma.mma_async"))
    return emulateWarpgroupProduct(op, calls);
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

static LogicalResult emulateProxyFence(NVVM::FenceProxyOp op, EmulatorCalls &calls) {
  if (op.getKind() != NVVM::ProxyKind::async_shared || op.getSpace() != NVVM::SharedSpace::shared_cta)
    return refuse(op, "is not for asynchronous units and a CTA's shared memory");
  calls.call(op, "tk_emu_fence_proxy", Type(), {});
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
      .Case([&](NVVM::FenceProxyOp fence) { return emulateProxyFence(fence, calls); })
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
