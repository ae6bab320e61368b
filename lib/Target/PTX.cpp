//===- PTX.cpp - the kernel's PTX text ------------------------------------===//

#include "lib/Target/Translations.h"

#include "lib/Pipelines/Registration.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Transforms/Utils/FixIrreducible.h"
#include "llvm/Transforms/Utils/LowerSwitch.h"

using namespace mlir;

// Where a loop has several entries, ptxas lets the threads of a warp go on without each other, also into a shuffle that
// wants all of them (seen with CUDA 12.9 and 13.0). LLVM makes such loops when it threads jumps.
static void makeReducible(llvm::Module &module) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::LowerSwitchPass());
  passes.addPass(llvm::FixIrreduciblePass());
  llvm::createModuleToFunctionPassAdaptor(std::move(passes)).run(module, modules);
}

// What warpgroups multiply starts at multiples of so many bytes, counted from zero. Nothing else is in shared memory.
static void alignShared(llvm::Module &module) {
  constexpr unsigned sharedSpace = 3, bytes = 1024;
  for (llvm::GlobalVariable &global : module.globals())
    if (global.getAddressSpace() == sharedSpace)
      global.setAlignment(llvm::Align(bytes));
}

static void prepare(llvm::Module &module) {
  makeReducible(module);
  alignShared(module);
}

// The module holds one gpu.module with one target attribute, as the last stage leaves it.
static LogicalResult translateToPTX(Operation *op, raw_ostream &output) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    return op->emitError("expected a builtin.module");
  auto gpuModules = llvm::to_vector(module.getOps<gpu::GPUModuleOp>());
  if (gpuModules.size() != 1)
    return module.emitError() << "holds " << gpuModules.size() << " GPU modules, expected one";
  gpu::GPUModuleOp gpuModule = gpuModules.front();
  ArrayAttr targets = gpuModule.getTargetsAttr();
  auto target =
      targets && targets.size() == 1 ? dyn_cast<gpu::TargetAttrInterface>(targets[0]) : gpu::TargetAttrInterface();
  if (!target)
    return gpuModule.emitError("has not one target, expected 'nvvm-attach-target' to have run once");
  gpu::TargetOptions options({}, {}, {}, {}, gpu::CompilationTarget::Assembly, {}, {}, {}, prepare);
  std::optional<SmallVector<char, 0>> text = target.serializeToObject(gpuModule, options);
  if (!text)
    return gpuModule.emitError("code generation failed");
  // The serializer ends the text with a NUL, as the driver wants it.
  output << StringRef(text->data(), text->size()).rtrim('\0');
  return success();
}

void mlir::megakernel::registerToPTX() {
  static TranslateFromMLIRRegistration registration("tk-to-ptx", "print the PTX of a lowered kernel", translateToPTX,
                                                    registerDialects);
}
