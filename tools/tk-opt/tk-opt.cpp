//===- tk-opt.cpp - runs passes over megakernel IR ------------------------===//
//
// One executable under three names, because each would be a full copy of MLIR: tk-opt runs passes, tk-translate
// writes target code, tk-lsp-server serves editors. `tk-opt --tool=NAME ...` is the same as calling it by that name.
//
//===----------------------------------------------------------------------===//

#include "lib/Pipelines/Registration.h"
#include "lib/Target/Translations.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;

static const char *const overview = R"(tk-opt: runs passes and pipelines over megakernel IR

The stages of a compilation are pipelines, here in their order; docs/pipelines.md says what each leaves:
  --tk-import         annotated linalg function -> megakernel.step (the graph form)
  --tk-fuse           ops that are computed together -> megakernel.fused
  --tk-schedule       megakernel.step -> megakernel.kernel (the scheduled form)
  --tk-lower-to-cuda  megakernel.kernel -> GPU module in NVVM, or
  --tk-lower-to-cpu   megakernel.kernel -> LLVM
Several at once, with options: --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=cpu})'
docs/passes.md describes the passes, whose names begin with tk- and convert-megakernel-to-.
)";

static LogicalResult runOpt(int argc, char **argv) {
  DialectRegistry registry;
  megakernel::registerDialects(registry);
  megakernel::registerPasses();
  return MlirOptMain(argc, argv, overview, registry);
}

static LogicalResult runTranslate(int argc, char **argv) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  megakernel::registerToPTX();
  megakernel::registerToObject();
  return mlirTranslateMain(
      argc, argv, "tk-translate: writes the code of lowered IR, --tk-to-ptx for a GPU, --tk-to-object for a CPU\n");
}

static LogicalResult runLspServer(int argc, char **argv) {
  DialectRegistry registry;
  megakernel::registerDialects(registry);
  megakernel::registerPasses();
  return MlirLspServerMain(argc, argv, registry);
}

int main(int argc, char **argv) {
  StringRef tool = llvm::sys::path::filename(argv[0]);
  bool isNamed = argc > 1 && StringRef(argv[1]).starts_with("--tool=");
  if (isNamed) {
    tool = StringRef(argv[1]).substr(7);
    // The name that --help and errors show.
    argv[1] += 7;
    --argc;
    ++argv;
  }
  if (tool == "tk-translate")
    return asMainReturnCode(runTranslate(argc, argv));
  if (tool == "tk-lsp-server")
    return asMainReturnCode(runLspServer(argc, argv));
  if (isNamed && tool != "tk-opt") {
    llvm::errs() << "there is no tool '" << tool << "', expected tk-opt, tk-translate or tk-lsp-server\n";
    return EXIT_FAILURE;
  }
  return asMainReturnCode(runOpt(argc, argv));
}
