//===- CPUEntry.cpp - the C entry point of a CPU step ---------------------===//

#include "lib/Conversion/CPUEntry/CPUEntry.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKEMITCPUENTRY
#include "lib/Conversion/CPUEntry/CPUEntry.h.inc"
} // namespace mlir::megakernel

using namespace mlir;

// Parameters of the worker function that the pool gives: worker, number of workers, context, barrier.
static constexpr unsigned numControlParameters = 4;

static bool isWorker(LLVM::LLVMFuncOp function) {
  ArrayRef<Type> types = function.getFunctionType().getParams();
  if (types.size() < numControlParameters || function.isExternal())
    return false;
  auto isPointer = [](Type type) { return isa<LLVM::LLVMPointerType>(type); };
  auto isOfStep = [&](Type type) { return isPointer(type) || type.isInteger(64); };
  ArrayRef<Type> control = types.take_back(numControlParameters);
  return llvm::all_of(types.drop_back(numControlParameters), isOfStep) && control[0].isInteger(64) &&
         control[1].isInteger(64) && isPointer(control[2]) && isPointer(control[3]);
}

static void emitEntry(LLVM::LLVMFuncOp worker, StringAttr name) {
  OpBuilder builder(worker);
  Location loc = worker.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type i64 = builder.getI64Type();
  auto type =
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()), {pointer, i64, i64, pointer, pointer});
  auto entry = LLVM::LLVMFuncOp::create(builder, loc, name, type);
  Block *block = entry.addEntryBlock(builder);
  builder.setInsertionPointToStart(block);
  SmallVector<Value> arguments;
  for (unsigned i = 0, e = worker.getNumArguments() - numControlParameters; i < e; ++i) {
    Value slot = LLVM::GEPOp::create(builder, loc, pointer, pointer, block->getArgument(0), ArrayRef<LLVM::GEPArg>{i});
    arguments.push_back(LLVM::LoadOp::create(builder, loc, worker.getArgument(i).getType(), slot));
  }
  llvm::append_range(arguments, block->getArguments().drop_front());
  LLVM::CallOp::create(builder, loc, worker, arguments);
  LLVM::ReturnOp::create(builder, loc, ValueRange());
}

namespace {
struct CPUEntryPass : public megakernel::impl::TkEmitCPUEntryBase<CPUEntryPass> {
  void runOnOperation() override {
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<LLVM::LLVMFuncOp>()))
      if (auto name = function->getAttrOfType<StringAttr>("megakernel.entry")) {
        if (!isWorker(function)) {
          function.emitError() << "has the attribute 'megakernel.entry' and the type " << function.getFunctionType()
                               << ", expected pointers and i64, then worker and number of workers (i64), context "
                                  "and barrier (pointers)";
          return signalPassFailure();
        }
        function->removeAttr("megakernel.entry");
        function.setLinkage(LLVM::Linkage::Internal);
        emitEntry(function, name);
      }
  }
};
} // namespace
