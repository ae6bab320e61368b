//===- EmulatorCalls.h - calls of the emulator ------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_NVVMTOEMULATOR_EMULATORCALLS_H
#define TRAINKERNEL_LIB_CONVERSION_NVVMTOEMULATOR_EMULATORCALLS_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::megakernel {

/// Emits calls of extern "C" functions, and numbers the places of the code that make them.
class EmulatorCalls {
public:
  explicit EmulatorCalls(gpu::GPUModuleOp module) : module(module) {}

  /// Calls `name` ahead of `op`; without a value where `result` is null.
  Value call(Operation *op, StringRef name, Type result, ValueRange arguments);
  /// The number of a place: an i32. Errors show `what` and the user's line.
  Value site(Operation *op, StringRef what);
  Value constant(Operation *op, int32_t value);
  /// A struct of values.
  Value pack(Operation *op, Type type, ValueRange values);
  /// A slot of the stack for operands and results of ops that a warp does together: two arrays of i32.
  static constexpr int64_t maxOperands = 16;
  static constexpr int64_t maxResults = 128;
  std::pair<Value, Value> scratch(Operation *op);
  /// Stores values of 32 bits ahead of `op`, one behind the other.
  void store(Operation *op, Value array, ValueRange values);
  /// Loads a struct of values of 32 bits.
  Value load(Operation *op, Value array, Type type);

  /// One line for each place.
  std::string describeSites() const;

private:
  Value at(Operation *op, Value array, int32_t index);

  gpu::GPUModuleOp module;
  SmallVector<std::string> sites;
  llvm::DenseMap<Operation *, std::pair<Value, Value>> scratches;
};

/// Turns an op that is not plain arithmetic into calls; leaves what runs on any machine as it is. Fails on what is
/// neither.
LogicalResult emulate(Operation *op, EmulatorCalls &calls);
/// Loads and stores: a check ahead of each. The bytes of an element of it, or 0 where nothing is to be checked.
FailureOr<int64_t> emulateAccess(Operation *op, EmulatorCalls &calls);
/// Pointers into shared memory. Null where there is nothing to do.
void emulatePointer(Operation *op, EmulatorCalls &calls);
/// Calls of the device library and of the GPU's intrinsics, and arithmetic that the host does not have.
LogicalResult emulateFloats(Operation *op, EmulatorCalls &calls);

} // namespace mlir::megakernel

#endif
