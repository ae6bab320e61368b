//===- WarpUnit.cpp - products by warps with matrix units -----------------===//

#include "lib/Conversion/MegakernelToGPU/WarpUnit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::megakernel;

WarpUnit::WarpUnit(const CtaContext &context, const ContractionPlan &plan)
    : FragmentUnit(context, plan, trainkernel::matrixBlockOf(plan.sizeOf(plan.mLoop)).rows) {}

SmallVector<Value> WarpUnit::multiply(Value aTile, Value bTile, ValueRange accumulators) {
  prepare(bTile);
  if (!isActive)
    return multiplyActive(aTile, bTile, accumulators);
  auto branch = scf::IfOp::create(builder, loc, TypeRange(accumulators), isActive, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(builder, loc, multiplyActive(aTile, bTile, accumulators));
  builder.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(builder, loc, accumulators);
  return SmallVector<Value>(branch.getResults());
}

void WarpUnit::locateWarp(Value warp) {
  const trainkernel::ThreadLayout &layout = plan.layout;
  isActive = layout.used() * 32 < context.threads ? math.less(warp, layout.used()) : Value();
  warpGroup = math.rem(math.div(warp, layout.perGroup()), layout.groups);
  warpM = math.mul(math.rem(math.div(warp, layout.columns), layout.rows), mBlocks * blockShape.rows);
  warpN = math.mul(math.rem(warp, layout.columns), nBlocks * blockShape.columns);
}

// Lane l gives the address of row l % 8 of block l / 8.
SmallVector<Value> WarpUnit::loadMatrices(Value memory, const SharedTile &tile, Value start, Value k, int64_t tiles,
                                          bool downFirst) {
  int64_t perRow = 128 / tile.element.getIntOrFloatBitWidth();
  bool kInner = isAlongK(tile);
  Value row = math.rem(lane, 8), first = math.rem(math.div(lane, 8), 2);
  Value second = tiles == 2 ? math.constant(0) : math.div(lane, 16);
  Value downBlock = downFirst ? first : second, kBlock = downFirst ? second : first;
  Value down = math.add(start, math.mul(downBlock, 8)), along = math.add(k, math.mul(kBlock, perRow));
  Value outer = kInner ? math.add(down, row) : math.add(along, row), inner = kInner ? along : down;
  // Behind rows that are used where they lie is something else.
  if (&tile == &plan.a && plan.rowsAt && plan.rows < plan.sizeOf(plan.mLoop))
    outer = math.min(outer, math.constant(plan.rows - 1));
  Value address = addressOf(memory, tile, outer, inner);
  Type i32 = builder.getI32Type();
  auto type = LLVM::LLVMStructType::getLiteral(builder.getContext(), SmallVector<Type>(tiles, i32));
  Value loaded = NVVM::LdMatrixOp::create(
      builder, loc, type, address, tiles, kInner ? NVVM::MMALayout::row : NVVM::MMALayout::col,
      NVVM::LdStMatrixShapeAttr::get(builder.getContext(), 8, 8), NVVM::LdStMatrixEltType::B16);
  SmallVector<Value> registers;
  for (int64_t i = 0; i < tiles; ++i)
    registers.push_back(LLVM::ExtractValueOp::create(builder, loc, loaded, i));
  return registers;
}

void WarpUnit::loadPairOfB(Value memory, int64_t block, Value k, SmallVectorImpl<SmallVector<Value>> &fragments) {
  int64_t blocks = std::min<int64_t>(2, nBlocks - block);
  SmallVector<Value> loaded =
      loadMatrices(memory, plan.b, math.add(warpN, block * 8), k, 2 * blocks, /*downFirst=*/false);
  for (int64_t i = 0; i < blocks; ++i)
    fragments.push_back({loaded[2 * i], loaded[2 * i + 1]});
}

// A pointer into shared memory, built from 32-bit arithmetic.
Value WarpUnit::addressOf(Value memory, const SharedTile &tile, Value outer, Value inner) {
  Value element = math.add(math.mul(outer, tile.pitch), inner);
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memory);
  Value byte = math.add(base, math.mul(element, tile.element.getIntOrFloatBitWidth() / 8));
  Value bits = arith::IndexCastUIOp::create(builder, loc, builder.getI32Type(), byte);
  auto space = static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);
  return LLVM::IntToPtrOp::create(builder, loc, LLVM::LLVMPointerType::get(builder.getContext(), space), bits);
}

SmallVector<Value> WarpUnit::multiplyAdd(NVVM::MMATypes type, ArrayRef<Value> a, ArrayRef<Value> b,
                                         ArrayRef<Value> addends) {
  Type f32 = builder.getF32Type();
  auto results = LLVM::LLVMStructType::getLiteral(builder.getContext(), {f32, f32, f32, f32});
  Value product = NVVM::MmaOp::create(builder, loc, results, a, b, addends, ArrayRef<int64_t>{16, 8, stepDepth},
                                      /*b1Op=*/std::nullopt, /*intOverflow=*/std::nullopt,
                                      std::array<NVVM::MMATypes, 2>{type, type},
                                      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row, NVVM::MMALayout::col});
  SmallVector<Value> elements;
  for (int64_t i = 0; i < 4; ++i)
    elements.push_back(LLVM::ExtractValueOp::create(builder, loc, product, i));
  return elements;
}

// Fully unrolled, a deep chunk would be more code than it is worth.
SmallVector<Value> WarpUnit::multiplyActive(Value aTile, Value bTile, ValueRange accumulators) {
  int64_t unrolled = 4 * stepDepth, depth = groupDepth();
  Value start = groupStart();
  if (depth <= 2 * unrolled || depth % unrolled != 0)
    return multiplySteps(aTile, bTile, start, depth, accumulators);
  auto loop =
      scf::ForOp::create(builder, loc, math.constant(0), math.constant(depth), math.constant(unrolled), accumulators);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  scf::YieldOp::create(
      builder, loc,
      multiplySteps(aTile, bTile, math.add(start, loop.getInductionVar()), unrolled, loop.getRegionIterArgs()));
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value> WarpUnit::multiplySteps(Value aTile, Value bTile, Value start, int64_t depth,
                                           ValueRange accumulators) {
  SmallVector<Value> sums(accumulators);
  for (int64_t step = 0; step < depth; step += stepDepth)
    multiplyStep(aTile, bTile, math.add(start, step), sums);
  return sums;
}
