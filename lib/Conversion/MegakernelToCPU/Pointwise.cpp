//===- Pointwise.cpp - tiles without a reduction --------------------------===//

#include "lib/Conversion/MegakernelToCPU/WorkerContext.h"

using namespace mlir;
using namespace mlir::megakernel;

LogicalResult mlir::megakernel::emitPointwise(const WorkerContext &context, TileDomain &domain) {
  return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) {
    return context.forEachElement(domain, origin, [&](ArrayRef<LaneIndex> indices, int64_t lanes) {
      ElementEmitter emitter = context.emitter(domain.tile, lanes);
      return emitResults(emitter, domain, indices);
    });
  });
}
