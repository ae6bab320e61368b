//===- Registration.cpp - the dialect and the passes for Python -----------===//
//
// Called with ctypes by python/trainkernel/ir, which hands over what MLIR's own Python package holds.
//
//===----------------------------------------------------------------------===//

#include "lib/Pipelines/Registration.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;

extern "C" {

/// Adds the megakernel dialect to a `mlir::DialectRegistry`.
void tk_register_dialect(void *registry) {
  static_cast<DialectRegistry *>(registry)->insert<megakernel::MegakernelDialect>();
}

/// Registers the passes and the named pipelines of this project, once in a process.
void tk_register_passes() { [[maybe_unused]] static bool once = (megakernel::registerOwnPasses(), true); }
}
