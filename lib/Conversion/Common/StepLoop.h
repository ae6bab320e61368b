//===- StepLoop.h - the loop over the steps of a launch ---------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_STEPLOOP_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_STEPLOOP_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::megakernel {

/// What a launch says of its steps: how many, and over how many entries each batch argument goes. Both are of one
/// integer type and at least 1.
struct LaunchSteps {
  Value steps, ring;
};

/// The loop over the steps of a launch: what is emitted between `begin` and `end` runs once for each.
class StepLoop {
public:
  /// An index has `indexBits` once it is lowered.
  StepLoop(OpBuilder &builder, KernelOp kernel, LaunchSteps launch, unsigned indexBits)
      : builder(builder), kernel(kernel), launch(launch), indexBits(indexBits) {}

  /// Opens the loop, which carries `initial`, and moves the builder into it.
  void begin(ValueRange initial);
  /// Maps each argument of the kernel, given as the memory of step 0, to its memory in the step.
  void mapArguments(IRMapping &buffers);
  /// What the step before left, or `initial`.
  ValueRange carried();
  /// Whether a step came before, and whether another one comes after.
  Value hasPrevious();
  Value hasNext();
  /// The start of a buffer in the arena, which begins at byte `start` of the workspace, as an index.
  Value placeOf(BufferOp buffer, int64_t start);
  /// Ends the step, which leaves `carried`, and moves the builder behind the loop.
  void end(ValueRange carried);

private:
  Value constant(int64_t value);
  Value advance(Value buffer, Value entry);

  OpBuilder &builder;
  KernelOp kernel;
  LaunchSteps launch;
  unsigned indexBits;
  scf::WhileOp loop;
};

/// The pointer to a buffer's first element.
Value addressOf(OpBuilder &builder, Value buffer, unsigned indexBits);

/// Bytes that the start of a buffer is known to be a multiple of, where it is less than for other buffers: that of an
/// entry among others. Nothing where it is not known to be less.
std::optional<int64_t> alignmentOfEntry(Value buffer);

} // namespace mlir::megakernel

#endif
