//===- TileGeometry.cpp - how a tile op is cut ----------------------------===//

#include "lib/Analysis/TileGeometry.h"

#include "lib/Analysis/OnChip.h"
#include "lib/Analysis/Sources.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::Multiplier;

TileGeometry::TileGeometry(TileOp tile) : tile(tile), region(FusedRegion::get(tile.getBody())) {
  ArrayRef<int64_t> all = this->tile.getSizes();
  sizes = all.take_front(region.parallelShape.size());
  reductionSizes = all.drop_front(region.parallelShape.size());
  for (auto [extent, size] : llvm::zip(region.parallelShape, sizes)) {
    tileCounts.push_back(llvm::divideCeil(extent, size));
    numTiles *= tileCounts.back();
  }
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
  AffineMap result =
      generic.getMatchingIndexingMap(generic.getDpsInitOperand(cast<OpResult>(tensor).getResultNumber()));
  OpOperand *heaviest = nullptr;
  for (OpOperand *input : generic.getDpsInputOperands()) {
    auto type = dyn_cast<RankedTensorType>(input->get().getType());
    if (type &&
        (!heaviest || type.getNumElements() > cast<RankedTensorType>(heaviest->get().getType()).getNumElements()))
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

static bool readsLoop(linalg::GenericOp op, OpOperand *operand, unsigned loop) {
  return op.getMatchingIndexingMap(operand).isFunctionOfDim(loop);
}

std::pair<OpOperand *, OpOperand *> mlir::megakernel::operandsOf(linalg::GenericOp op, unsigned m) {
  OpOperand *first = op.getDpsInputOperand(0), *second = op.getDpsInputOperand(1);
  return readsLoop(op, first, m) ? std::pair(first, second) : std::pair(second, first);
}

ContractionGeometry::ContractionGeometry(const TileGeometry &geometry) : op(geometry.region.reduction) {
  FusedRegion region = geometry.region;
  ContractionLoops loops(region);
  mLoop = loops.m.back();
  nLoop = loops.n.back();
  kLoop = loops.k.back();
  extents = op.getStaticLoopRanges();
  tileSizes.assign(extents.size(), 1);
  for (auto [loop, size] : llvm::zip(region.parallelLoops, geometry.sizes))
    tileSizes[loop] = size;
  for (auto [loop, size] : llvm::zip(region.reductionLoops, geometry.reductionSizes)) {
    tileSizes[loop] = size;
    chunkCounts.push_back(llvm::divideCeil(extents[loop], size));
    numChunks *= chunkCounts.back();
  }
  std::tie(aOperand, bOperand) = operandsOf(op, mLoop);
}

// How the step, or the kernel made of it, computes float32 products.
static Fp32 declaredFp32(Operation *op) {
  if (auto kernel = op->getParentOfType<KernelOp>())
    return kernel.getFp32().value_or(Fp32::IEEE);
  auto step = op->getParentOfType<StepOp>();
  return step ? step.getFp32().value_or(Fp32::IEEE) : Fp32::IEEE;
}

Multiplier mlir::megakernel::multiplierOf(linalg::GenericOp op) {
  Type first = getElementTypeOrSelf(op.getDpsInputs()[0].getType());
  Type second = getElementTypeOrSelf(op.getDpsInputs()[1].getType());
  if (first == second && (first.isBF16() || first.isF16()))
    return Multiplier::Narrow;
  return declaredFp32(op) == Fp32::TF32x3 ? Multiplier::Tf32x3 : Multiplier::ThreadFma;
}

static bool hasWarpgroups(TileOp tile) {
  auto kernel = tile->getParentOfType<KernelOp>();
  std::optional<trainkernel::TargetFacts> target =
      kernel ? trainkernel::findTarget(kernel.getTarget().value_or("")) : std::nullopt;
  return target && target->hasWarpgroups;
}

ContractionPlan::ContractionPlan(const TileGeometry &geometry, int64_t threads) : ContractionGeometry(geometry) {
  FusedRegion region = geometry.region;
  TileOp tile = geometry.tile;
  multiplier = multiplierOf(op);
  keptAt = tile.getKeptAt();
  reusesKept = tile.getReusesKept();
  isInRegisters = tile.getInRegisters();
  rowsAt = tile.getRowsAt();
  rows = tileSizes[mLoop];
  tileSizes[mLoop] = trainkernel::paddedRows(multiplier, rows, tileSizes[nLoop]);
  bool sharesOperands = rowsAt || keptAt;
  trainkernel::TileWork work{rows,          sizeOf(mLoop),  sizeOf(nLoop),
                             sizeOf(kLoop), numChunks,      epilogueBytes(region),
                             isInRegisters, sharesOperands, static_cast<int64_t>(tile.getGroups().value_or(0))};
  layout = trainkernel::chooseLayout(multiplier, work, {threads, hasWarpgroups(tile)});
  auto place = [&](OpOperand *operand, unsigned loop, int64_t byteOffset) {
    // Each unit reads either order, so the order of global memory is kept: no store has to transpose.
    bool kInner = contiguousLoop(op, operand) == kLoop;
    unsigned inner = kInner ? kLoop : loop, outer = kInner ? loop : kLoop;
    // What is not narrow is float32 in shared memory, whatever it was.
    Type narrow = getElementTypeOrSelf(operand->get().getType());
    Type element = multiplier == Multiplier::Narrow ? narrow : Type(Float32Type::get(op.getContext()));
    // What is kept serves tile ops that read it in either order.
    bool isKept = operand == bOperand && keptAt;
    int64_t padding = trainkernel::rowPadding(multiplier, kInner || isKept) * 8 / element.getIntOrFloatBitWidth();
    SharedTile tile{outer, inner, tileSizes[outer], tileSizes[inner], tileSizes[inner] + padding, element, byteOffset};
    if (layout.byWarpgroups)
      swizzle(tile);
    // Global memory is read along the loop that is contiguous there, whatever the order in shared memory.
    tile.readLoop = contiguousLoop(op, operand);
    if (tile.readLoop != inner && tile.readLoop != outer)
      tile.readLoop = inner;
    tile.otherLoop = tile.readLoop == inner ? outer : inner;
    // 16 bytes of memory a lane: more in two loads would leave gaps between the lanes of each.
    int64_t most = 16 / widestSourceBytes(operand->get());
    if (tile.swizzle)
      most = std::min(most, 16 / tile.elementBytes());
    tile.lanes = commonPowerOfTwo(most, {extents[tile.readLoop], ownSizeOf(tile.readLoop)});
    tile.vectorsPerItem =
        llvm::divideCeil(std::max<int64_t>(1, bytesPerElement(sourcesOf(operand->get()))) * tile.lanes, 16);
    return tile;
  };
  a = place(aOperand, mLoop, rowsAt.value_or(0));
  if (rowsAt)
    a.pitch = a.inner;
  b = place(bOperand, nLoop, keptAt.value_or(0));
  int64_t behindA = rowsAt ? 0 : llvm::alignTo(a.bytes(), b.alignment());
  if (!keptAt)
    b.byteOffset = behindA;
  stageBytes = keptAt ? behindA : llvm::alignTo(b.byteOffset + b.bytes(), alignment());
  isPipelined =
      numChunks > 1 && a.vectorsPerThread(threads) + b.vectorsPerThread(threads) <= trainkernel::maxVectorsCarried;
}

// Panels are as wide as they can be. A warpgroup's part starts where one does; along k it may lie inside of one.
void ContractionPlan::swizzle(SharedTile &tile) const {
  const int64_t widest = 128 / tile.elementBytes();
  int64_t parts = tile.innerLoop == nLoop ? layout.columns : tile.innerLoop == kLoop ? layout.groups : 1;
  int64_t own = tile.inner / parts, width = commonPowerOfTwo(widest, {tile.inner});
  bool liesInside = tile.innerLoop == kLoop && width % own == 0;
  if (!liesInside)
    width = commonPowerOfTwo(widest, {own});
  tile.swizzle = width * tile.elementBytes();
  tile.pitch = tile.inner;
}

SharedNeed mlir::megakernel::sharedNeedOf(const TileGeometry &geometry, int64_t threads) {
  if (!geometry.region.reduction)
    return {};
  FusedRegion region = geometry.region;
  // One partial result of at most eight bytes per thread and result.
  if (!region.isContraction())
    return {static_cast<int64_t>(threads * 8 * region.reduction->getNumResults())};
  ContractionPlan plan(geometry, threads);
  return {plan.sharedBytes(), plan.alignment()};
}

SharedLayout::SharedLayout(const PhaseInMemory &phase, int64_t threads, int64_t limit) {
  SmallVector<SharedNeed> needs;
  for (auto tile : PhaseOp(phase.phase).getBody().front().getOps<TileOp>()) {
    needs.push_back(sharedNeedOf(TileGeometry(tile), threads));
    alignment = std::max(alignment, needs.back().alignment);
  }
  const int64_t start = llvm::alignTo(phase.reservedBytes, alignment);
  int64_t largest = 0, end = start;
  for (const SharedNeed &need : needs) {
    offsets.push_back(llvm::alignTo(end, need.alignment));
    end = offsets.back() + llvm::alignTo(need.bytes, 16);
    largest = std::max<int64_t>(largest, llvm::alignTo(need.bytes, 16));
  }
  isDisjoint = end <= limit;
  bytes = isDisjoint ? end : start + largest;
  if (!isDisjoint)
    offsets.assign(offsets.size(), start);
}
