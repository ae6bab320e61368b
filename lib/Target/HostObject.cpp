//===- HostObject.cpp - an object file for the CPU ------------------------===//

#include "lib/Target/Translations.h"

#include "lib/Pipelines/Registration.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/ADT/StringExtras.h"
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

static llvm::cl::opt<unsigned> optLevel("tk-opt-level", llvm::cl::desc("how much to optimise, 0 to 3 (default: 3)"),
                                        llvm::cl::init(3));

// The code generator would warn of what it does not know and take the oldest CPU there is.
static LogicalResult checkCpu(Operation *op, const llvm::Target &target, const llvm::Triple &triple) {
  std::unique_ptr<llvm::MCSubtargetInfo> known(target.createMCSubtargetInfo(triple, "", ""));
  if (!known->isCPUStringValid(cpuName))
    return op->emitError() << "unknown CPU '" << cpuName << "', expected one of 'llc -mcpu=help'";
  for (StringRef feature : llvm::split(StringRef(cpuFeatures), ',')) {
    if (feature.empty())
      continue;
    bool isSigned = feature.starts_with("+") || feature.starts_with("-");
    bool isKnown = llvm::any_of(known->getAllProcessorFeatures(),
                                [&](const llvm::SubtargetFeatureKV &entry) { return entry.Key == feature.substr(1); });
    if (!isSigned || !isKnown)
      return op->emitError() << "unknown CPU feature '" << feature << "', expected + or - and one of 'llc -mattr=help'";
  }
  return success();
}

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
  if (failed(checkCpu(op, *target, triple)))
    return nullptr;
  if (optLevel > 3) {
    op->emitError() << "'--tk-opt-level' is " << optLevel.getValue() << ", expected 0 to 3";
    return nullptr;
  }
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, cpuName, cpuFeatures, {}, llvm::Reloc::PIC_, std::nullopt, *llvm::CodeGenOpt::getLevel(optLevel)));
  return machine;
}

static LogicalResult translateToObject(Operation *op, raw_ostream &output) {
  std::unique_ptr<llvm::TargetMachine> machine = createMachine(op);
  if (!machine)
    return failure();
  if (!op->getRegion(0).getOps<gpu::GPUModuleOp>().empty())
    return op->emitError("is lowered for a GPU, expected 'tk-lower-to-cpu' to have run");
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
  if (llvm::Error error = makeOptimizingTransformer(optLevel, 0, machine.get())(module.get()))
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
