//===- MegakernelToCPU.cpp - the worker function of a CPU step ------------===//

#include "lib/Conversion/MegakernelToCPU/MegakernelToCPU.h"

#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Conversion/Common/Describe.h"
#include "lib/Conversion/Common/SharedBodies.h"
#include "lib/Conversion/Common/StepLoop.h"
#include "lib/Conversion/MegakernelToCPU/WorkerContext.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_CONVERTMEGAKERNELTOCPU
#include "lib/Conversion/MegakernelToCPU/MegakernelToCPU.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class KernelLowering {
public:
  KernelLowering(KernelOp kernel, int64_t lanes, int64_t smallKernel)
      : kernel(kernel), lanes(lanes), builder(kernel), bodies(kernel.getSymName().str() + "_body", smallKernel) {}

  LogicalResult run() {
    if (kernel.getTarget().value_or("cpu") != "cpu")
      return kernel.emitError() << "is scheduled for '" << *kernel.getTarget() << "', expected 'cpu'";
    // One of a pair: the runtime of a CPU knows one kernel.
    if (kernel.getStepCount())
      return kernel.emitError() << "is for launches of " << stringifyStepCount(*kernel.getStepCount())
                                << " step(s) alone, expected one for any number of steps";
    kernel.walk([&](TileOp tile) { scratchBytes = std::max(scratchBytes, scratchBytesOf(TileDomain(tile))); });
    LaunchNeeds needs{/*sharedBytes=*/0, workspaceBytes()};
    needs.repeated = kernel.getSymName();
    if (failed(describeKernel(kernel->getParentOfType<ModuleOp>(), kernel, needs)))
      return failure();
    createFunction();
    if (loop) {
      loop->begin({});
      loop->mapArguments(buffers);
    }
    for (Operation &op : kernel.getBody().front())
      if (failed(lower(op)))
        return failure();
    for (func::FuncOp body : bodies.share(worker))
      lowerBFloat16(body);
    lowerBFloat16(worker);
    kernel.erase();
    return success();
  }

private:
  int64_t workspaceBytes() { return std::max<int64_t>(64, arenaBytes() + onChipBytes(nullptr)); }
  int64_t arenaBytes() { return llvm::alignTo(kernel.getArenaBytes().value_or(0), 64); }
  // Those of the buffers on chip that come before `end`, or of all.
  int64_t onChipBytes(Operation *end) {
    int64_t bytes = 0;
    for (auto buffer : kernel.getBody().front().getOps<BufferOp>()) {
      if (buffer == end)
        break;
      bytes += buffer.isOnChip() ? llvm::alignTo(bytesOfBuffer(buffer.getType()), 64) : 0;
    }
    return bytes;
  }
  // A CPU has memory of one kind only: what a schedule for others has on chip lies behind the arena.
  std::optional<int64_t> placeOf(BufferOp buffer) {
    if (buffer.isOnChip())
      return arenaBytes() + onChipBytes(buffer);
    return buffer.getOffset();
  }
  void createFunction();
  LogicalResult lower(Operation &op);
  LogicalResult lowerTiles(PhaseOp phase);
  LogicalResult lowerTile(TileOp tile);

  KernelOp kernel;
  int64_t lanes, scratchBytes = 64;
  OpBuilder builder;
  IRMapping buffers;
  func::FuncOp worker;
  SharedBodies bodies;
  std::optional<WorkerContext> context;
  /// Over the steps of a launch, where the kernel repeats.
  std::optional<StepLoop> loop;
};
} // namespace

void KernelLowering::createFunction() {
  Location loc = kernel.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  SmallVector<Type> types;
  for (Type type : kernel.getArgumentTypes())
    types.push_back(typeInMemory(cast<MemRefType>(type)));
  types.push_back(MemRefType::get(workspaceBytes(), builder.getI8Type()));
  unsigned workspace = types.size() - 1;
  if (kernel.getRepeat())
    types.append(2, builder.getI64Type());
  types.append({builder.getIndexType(), builder.getIndexType(), pointer, pointer});
  worker =
      func::FuncOp::create(builder, loc, (kernel.getSymName() + "_worker").str(), builder.getFunctionType(types, {}));
  worker->setAttr("megakernel.entry", kernel.getSymNameAttr());
  Block *entry = worker.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  for (auto [index, argument] : llvm::enumerate(kernel.getArguments()))
    buffers.map(argument, entry->getArgument(index));
  auto scratchType = MemRefType::get(scratchBytes, builder.getI8Type());
  Value scratch = memref::AllocaOp::create(builder, loc, scratchType, builder.getI64IntegerAttr(64));
  auto control = entry->getArguments().take_back(4);
  context.emplace(WorkerContext{builder, control[0], control[1], control[2], control[3], entry->getArgument(workspace),
                                scratch, lanes});
  if (kernel.getRepeat())
    loop.emplace(builder, kernel, LaunchSteps{entry->getArgument(workspace + 1), entry->getArgument(workspace + 2)},
                 /*indexBits=*/64);
}

LogicalResult KernelLowering::lower(Operation &op) {
  Location loc = op.getLoc();
  if (auto buffer = dyn_cast<BufferOp>(op)) {
    std::optional<int64_t> place = placeOf(buffer);
    if (!place)
      return buffer.emitError("buffer has no offset, expected 'tk-plan-buffers' to have run");
    Value offset = loop && !buffer.isOnChip() ? loop->placeOf(buffer, 0) : context->math(loc).constant(*place);
    buffers.map(buffer.getResult(), memref::ViewOp::create(builder, loc, typeInMemory(buffer.getType()),
                                                           context->workspace, offset, ValueRange())
                                        .getResult());
    return success();
  }
  if (auto barrier = dyn_cast<BarrierOp>(op)) {
    // A CTA is a worker, which does one thing after the other. All other scopes join all workers.
    if (joinedBy(kernel, barrier.getScope()) != trainkernel::SyncScope::Cta)
      context->barrier(loc);
    return success();
  }
  if (auto phase = dyn_cast<PhaseOp>(op))
    return bodies.record(builder, [&] { return lowerTiles(phase); });
  if (isa<RepeatOp>(op)) {
    auto next = scf::IfOp::create(builder, loc, loop->hasNext(), /*withElseRegion=*/false);
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(next.thenBlock());
      context->barrier(loc);
    }
    loop->end({});
    return success();
  }
  if (isa<ReturnOp>(op)) {
    func::ReturnOp::create(builder, loc);
    return success();
  }
  if (isa<CommitOp>(op))
    return op.emitError("commit is not resolved, expected 'tk-commit-state' to have run");
  cloneReshape(builder, op, buffers);
  return success();
}

LogicalResult KernelLowering::lowerTiles(PhaseOp phase) {
  for (auto tile : phase.getBody().front().getOps<TileOp>())
    if (failed(bodies.record(builder, [&] { return lowerTile(tile); })))
      return failure();
  return success();
}

LogicalResult KernelLowering::lowerTile(TileOp tile) {
  for (OpOperand &operand : tile->getOpOperands())
    operand.set(buffers.lookupOrDefault(operand.get()));
  TileDomain domain(tile);
  if (domain.numTiles == 0)
    return success();
  if (!domain.region.reduction)
    return emitPointwise(*context, domain);
  return domain.region.isContraction() ? emitContraction(*context, domain) : emitReduction(*context, domain);
}

namespace {
struct ConvertMegakernelToCPUPass : public megakernel::impl::ConvertMegakernelToCPUBase<ConvertMegakernelToCPUPass> {
  using ConvertMegakernelToCPUBase::ConvertMegakernelToCPUBase;

  void runOnOperation() override {
    if (vectorBits != 256 && vectorBits != 512) {
      getOperation().emitError() << "vector-bits is " << static_cast<int64_t>(vectorBits) << ", expected 256 or 512";
      return signalPassFailure();
    }
    for (auto kernel : llvm::make_early_inc_range(getOperation().getOps<KernelOp>()))
      if (failed(KernelLowering(kernel, vectorBits / 32, smallKernel).run()))
        return signalPassFailure();
    if (failed(lowerMathNearZero(getOperation())))
      signalPassFailure();
  }
};
} // namespace
