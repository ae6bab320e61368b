//===- Registration.cpp - everything a tool must know ---------------------===//

#include "lib/Pipelines/Registration.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"

void mlir::megakernel::registerDialects(DialectRegistry &registry) {
  registerAllDialects(registry);
  registerAllExtensions(registry);
  registry.insert<MegakernelDialect>();
}

void mlir::megakernel::registerPasses() { registerAllPasses(); }
