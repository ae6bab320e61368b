//===- TileDomain.cpp - the domain that a tile op is cut over -------------===//

#include "lib/Conversion/Common/TileDomain.h"

#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::megakernel;

TileDomain::TileDomain(TileOp tile) : tile(tile), region(FusedRegion::get(tile.getBody())) {
  ArrayRef<int64_t> all = tile.getSizes();
  sizes = all.take_front(region.parallelShape.size());
  reductionSizes = all.drop_front(region.parallelShape.size());
  for (auto [extent, size] : llvm::zip(region.parallelShape, sizes)) {
    tileCounts.push_back(llvm::divideCeil(extent, size));
    numTiles *= tileCounts.back();
  }
}

SmallVector<LaneIndex> TileDomain::origin(const IndexMath &math, Value linear) const {
  SmallVector<LaneIndex> indices;
  for (auto [coordinate, size] : llvm::zip(math.delinearize(linear, tileCounts), sizes))
    indices.push_back({math.mul(coordinate, size), 0, size});
  return indices;
}

Value TileDomain::inBounds(const IndexMath &math, ArrayRef<LaneIndex> indices) const {
  Value inside;
  for (auto [dim, index] : llvm::enumerate(indices))
    if (isPartial(dim))
      inside = math.both(inside, math.less(index.base, shape()[dim]));
  return inside;
}

LogicalResult mlir::megakernel::emitResults(ElementEmitter &emitter, const TileDomain &domain,
                                            ArrayRef<LaneIndex> indices) {
  SmallVector<Value> values;
  for (Value yielded : domain.region.yielded) {
    values.push_back(emitter.emit(yielded, indices));
    if (!values.back())
      return failure();
  }
  TileOp tile = domain.tile;
  for (auto [value, output] : llvm::zip(values, tile.getOutputs()))
    emitter.store(tile.getLoc(), value, output, indices);
  return success();
}

int64_t mlir::megakernel::commonPowerOfTwo(int64_t limit, ArrayRef<int64_t> values) {
  int64_t power = limit;
  for (int64_t value : values)
    while (power > 1 && value % power != 0)
      power /= 2;
  return power;
}

ContractionLoops::ContractionLoops(FusedRegion &region) {
  linalg::ContractionDimensions dims =
      *linalg::inferContractionDims(cast<linalg::LinalgOp>(region.reduction.getOperation()));
  batch.assign(dims.batch.begin(), dims.batch.end());
  m.assign(dims.m.begin(), dims.m.end());
  n.assign(dims.n.begin(), dims.n.end());
  k.assign(dims.k.begin(), dims.k.end());
}

// The dimension of `tensor` that is contiguous in the buffer that most of it is read from, or nothing.
static std::optional<unsigned> contiguousDim(Value tensor) {
  int64_t rank = cast<RankedTensorType>(tensor.getType()).getRank();
  if (rank == 0)
    return std::nullopt;
  auto generic = tensor.getDefiningOp<linalg::GenericOp>();
  if (!generic)
    return rank - 1;
  AffineMap result = generic.getMatchingIndexingMap(generic.getDpsInitOperand(cast<OpResult>(tensor).getResultNumber()));
  OpOperand *heaviest = nullptr;
  for (OpOperand *input : generic.getDpsInputOperands()) {
    auto type = dyn_cast<RankedTensorType>(input->get().getType());
    if (type && (!heaviest ||
                 type.getNumElements() > cast<RankedTensorType>(heaviest->get().getType()).getNumElements()))
      heaviest = input;
  }
  std::optional<unsigned> dim = heaviest ? contiguousDim(heaviest->get()) : std::nullopt;
  if (!dim)
    return rank - 1;
  AffineExpr loop = generic.getMatchingIndexingMap(heaviest).getResult(*dim);
  for (auto [position, expr] : llvm::enumerate(result.getResults()))
    if (expr == loop)
      return position;
  return rank - 1;
}

unsigned mlir::megakernel::contiguousLoop(linalg::GenericOp op, OpOperand *operand) {
  std::optional<unsigned> dim = contiguousDim(operand->get());
  AffineMap map = op.getMatchingIndexingMap(operand);
  if (!dim)
    return 0;
  return cast<AffineDimExpr>(map.getResult(*dim)).getPosition();
}
