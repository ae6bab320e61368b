//===- HostObject.cpp - an object file for the CPU ------------------------===//

#include "lib/Target/Translations.h"

#include "lib/Pipelines/Registration.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;

static llvm::cl::opt<std::string> cpuName("tk-cpu", llvm::cl::desc("CPU to generate code for (default: x86-64-v3)"),
                                          llvm::cl::init("x86-64-v3"));
static llvm::cl::opt<std::string> cpuFeatures("tk-cpu-features", llvm::cl::desc("CPU features, as +a,+b"));

static std::unique_ptr<llvm::TargetMachine> createMachine(Operation *op) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) {
    op->emitError() << "no code generator for " << triple.str() << ": " << error;
    return nullptr;
  }
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, cpuName, cpuFeatures, {}, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  // The code generator would warn and take the oldest CPU there is.
  if (!machine->getMCSubtargetInfo()->isCPUStringValid(cpuName)) {
    op->emitError() << "unknown CPU '" << cpuName << "', expected one of 'llc -mcpu=help'";
    return nullptr;
  }
  return machine;
}

static LogicalResult translateToObject(Operation *op, raw_ostream &output) {
  std::unique_ptr<llvm::TargetMachine> machine = createMachine(op);
  if (!machine)
    return failure();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(op, context, "trainkernel");
  if (!module)
    return op->emitError("translation to LLVM IR failed");
  module->setDataLayout(machine->createDataLayout());
  module->setTargetTriple(machine->getTargetTriple());
  for (llvm::Function &function : *module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", machine->getTargetCPU());
    function.addFnAttr("target-features", machine->getTargetFeatureString());
    // Tiles are laid out for whole vectors; narrower ones would leave half of each unused.
    function.addFnAttr("prefer-vector-width", "512");
  }
  if (llvm::Error error = makeOptimizingTransformer(3, 0, machine.get())(module.get()))
    return op->emitError() << "optimisation failed: " << llvm::toString(std::move(error));
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return op->emitError("the code generator cannot write object files");
  passes.run(*module);
  output << stream.str();
  return success();
}

void mlir::megakernel::registerToObject() {
  static TranslateFromMLIRRegistration registration("tk-to-object", "write a host object file of a lowered kernel",
                                                    translateToObject, registerDialects);
}
