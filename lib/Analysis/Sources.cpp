//===- Sources.cpp - what a value of a fused region is read from ----------===//

#include "lib/Analysis/Sources.h"

#include "dialects/Megakernel/FusedRegion.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::megakernel;

static void collectSources(Value value, int64_t elements, Sources &sources) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getNumElements() * 2 <= elements)
    return;
  if (Operation *op = value.getDefiningOp())
    for (Value operand : valuesRead(op))
      collectSources(operand, elements, sources);
  else
    sources.insert(value);
}

Sources mlir::megakernel::sourcesOf(Value value) {
  Sources sources;
  collectSources(value, cast<RankedTensorType>(value.getType()).getNumElements(), sources);
  return sources;
}

int64_t mlir::megakernel::bytesPerElement(Value value) {
  return std::max<int64_t>(1, getElementTypeOrSelf(value.getType()).getIntOrFloatBitWidth() / 8);
}

int64_t mlir::megakernel::bytesPerElement(const Sources &sources) {
  int64_t bytes = 0;
  for (Value source : sources)
    bytes += bytesPerElement(source);
  return bytes;
}

int64_t mlir::megakernel::widestSourceBytes(Value value) {
  int64_t widest = 0;
  for (Value source : sourcesOf(value))
    widest = std::max(widest, bytesPerElement(source));
  return widest == 0 ? bytesPerElement(value) : widest;
}

int64_t mlir::megakernel::epilogueBytes(FusedRegion &region) {
  int64_t bytes = 0;
  Sources sources;
  for (Value yielded : region.yielded) {
    bytes += bytesPerElement(yielded);
    sources.insert_range(sourcesOf(yielded));
  }
  for (Value operand : region.reduction.getDpsInputs())
    for (Value source : sourcesOf(operand))
      sources.remove(source);
  return bytes + bytesPerElement(sources);
}
