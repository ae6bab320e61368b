//===- NVVMToEmulator.cpp - a GPU kernel as code for the emulator ---------===//

#include "lib/Conversion/NVVMToEmulator/NVVMToEmulator.h"

#include "lib/Conversion/NVVMToEmulator/EmulatorCalls.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_CONVERTNVVMTOEMULATOR
#include "lib/Conversion/NVVMToEmulator/NVVMToEmulator.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

// Bytes of the smallest access to memory that threads share; 0 of none.
static FailureOr<int64_t> emulateAll(gpu::GPUModuleOp module, EmulatorCalls &calls) {
  int64_t granule = 0;
  WalkResult walked = module.walk([&](LLVM::LLVMFuncOp function) {
    SmallVector<Operation *> ops;
    function.getBody().walk([&](Operation *op) { ops.push_back(op); });
    // Accesses first: they ask where a pointer comes from.
    for (Operation *op : ops) {
      FailureOr<int64_t> bytes = emulateAccess(op, calls);
      if (failed(bytes))
        return WalkResult::interrupt();
      if (*bytes > 0)
        granule = granule ? std::min(granule, *bytes) : *bytes;
    }
    for (Operation *op : ops) {
      if (isa<LLVM::AddressOfOp, LLVM::AddrSpaceCastOp, LLVM::PtrToIntOp, LLVM::IntToPtrOp>(op))
        emulatePointer(op, calls);
      else if (failed(emulate(op, calls)))
        return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  if (walked.wasInterrupted())
    return failure();
  return granule;
}

// `void NAME(void **params)`, each of which points to a parameter.
static void emitEntry(LLVM::LLVMFuncOp kernel) {
  OpBuilder builder(kernel);
  Location loc = kernel.getLoc();
  std::string name = kernel.getName().str();
  kernel.setName(name + "_thread");
  kernel.setLinkage(LLVM::Linkage::Internal);
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()), {pointer});
  auto entry = LLVM::LLVMFuncOp::create(builder, loc, name, type);
  Block *block = entry.addEntryBlock(builder);
  builder.setInsertionPointToStart(block);
  SmallVector<Value> arguments;
  for (auto [index, parameter] : llvm::enumerate(kernel.getArgumentTypes())) {
    Value slot = LLVM::GEPOp::create(builder, loc, pointer, pointer, block->getArgument(0),
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index)});
    Value place = LLVM::LoadOp::create(builder, loc, pointer, slot);
    arguments.push_back(LLVM::LoadOp::create(builder, loc, parameter, place));
  }
  LLVM::CallOp::create(builder, loc, kernel, arguments);
  LLVM::ReturnOp::create(builder, loc, ValueRange());
}

static void dropAttributesOfGpu(Operation *op) {
  for (NamedAttribute attribute : llvm::to_vector(op->getDiscardableAttrs()))
    if (StringRef name = attribute.getName(); name.starts_with("nvvm.") || name.starts_with("gpu."))
      op->removeAttr(name);
}

static void useOneAddressSpace(gpu::GPUModuleOp module) {
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [](LLVM::LLVMPointerType type) -> std::optional<Type> { return LLVM::LLVMPointerType::get(type.getContext()); });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
}

// Shared memory is what the emulator gives; all of it is sized by the launch.
static LogicalResult dropSharedMemory(gpu::GPUModuleOp module) {
  constexpr auto shared = static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);
  for (auto global : llvm::make_early_inc_range(module.getOps<LLVM::GlobalOp>())) {
    if (global.getAddrSpace() != shared) {
      global.setAddrSpace(0);
      continue;
    }
    auto array = dyn_cast<LLVM::LLVMArrayType>(global.getType());
    if (!array || array.getNumElements() != 0)
      return global.emitOpError("is shared memory of a fixed size, which the emulator does not know");
    global.erase();
  }
  return success();
}

static void addNumber(OpBuilder &builder, Location loc, StringRef name, int64_t number) {
  LLVM::GlobalOp::create(builder, loc, builder.getI32Type(), /*isConstant=*/true, LLVM::Linkage::External, name,
                         builder.getI32IntegerAttr(number));
}

static void addText(OpBuilder &builder, Location loc, StringRef name, std::string text) {
  text += '\0';
  auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), text.size());
  LLVM::GlobalOp::create(builder, loc, type, /*isConstant=*/true, LLVM::Linkage::External, name,
                         builder.getStringAttr(text));
}

namespace {
struct NVVMToEmulatorPass : public megakernel::impl::ConvertNVVMToEmulatorBase<NVVMToEmulatorPass> {
  void runOnOperation() override {
    auto modules = llvm::to_vector(getOperation().getOps<gpu::GPUModuleOp>());
    if (modules.size() != 1) {
      getOperation().emitError() << "holds " << modules.size() << " GPU modules, expected one";
      return signalPassFailure();
    }
    if (failed(convert(modules.front())))
      signalPassFailure();
  }

  LogicalResult convert(gpu::GPUModuleOp module) {
    EmulatorCalls calls(module);
    SmallVector<LLVM::LLVMFuncOp> kernels;
    for (auto function : llvm::make_early_inc_range(module.getOps<LLVM::LLVMFuncOp>())) {
      if (function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()))
        kernels.push_back(function);
      dropAttributesOfGpu(function);
    }
    FailureOr<int64_t> granule = emulateAll(module, calls);
    if (failed(granule) || failed(dropSharedMemory(module)))
      return failure();
    for (auto function : llvm::make_early_inc_range(module.getOps<LLVM::LLVMFuncOp>()))
      if (function.getName().starts_with("__nv_"))
        function.erase();
    useOneAddressSpace(module);
    for (LLVM::LLVMFuncOp kernel : kernels)
      emitEntry(kernel);
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    addText(builder, module.getLoc(), "trainkernel_emulator_sites", calls.describeSites());
    addNumber(builder, module.getLoc(), "trainkernel_emulator_granule", std::max<int64_t>(*granule, 1));
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      op.moveBefore(module);
    module.erase();
    getOperation()->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
    return success();
  }
};
} // namespace
