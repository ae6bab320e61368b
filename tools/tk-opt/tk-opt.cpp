//===- tk-opt.cpp - runs passes over megakernel IR ------------------------===//

#include "lib/Pipelines/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::megakernel::registerDialects(registry);
  mlir::megakernel::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "TrainKernel optimizer driver\n", registry));
}
