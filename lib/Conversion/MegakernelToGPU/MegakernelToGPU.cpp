//===- MegakernelToGPU.cpp - one GPU kernel from the scheduled form -------===//

#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h"

#include "lib/Analysis/Chains.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/OnChip.h"
#include "lib/Conversion/Common/Describe.h"
#include "lib/Conversion/Common/SharedBodies.h"
#include "lib/Conversion/Common/StepLoop.h"
#include "lib/Conversion/MegakernelToGPU/CtaContext.h"
#include "lib/Scheduling/TargetTable.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/ScopeExit.h"

#include <map>

namespace mlir::megakernel {
#define GEN_PASS_DEF_CONVERTMEGAKERNELTOGPU
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
/// The phase that code is being emitted for.
struct OpenPhase {
  struct Tile {
    Tile(TileOp tile, int64_t sharedOffset) : domain(tile), sharedOffset(sharedOffset) {}
    TileDomain domain;
    int64_t sharedOffset;
    /// Null for what is emitted in one go.
    std::unique_ptr<TileEmitter> emitter;
    bool isPointwise() const { return !domain.region.reduction && domain.numTiles > 0 && !isCopy; }
    bool isEmitted = false;
    /// Whether nothing else uses its shared memory up to the next barrier.
    bool isLastUse = false;
    /// Whether it is an asynchronous copy.
    bool isCopy = false;
  };
  PhaseOp phase;
  /// No two tile ops share shared memory.
  bool isDisjoint = false;
  SmallVector<std::unique_ptr<Tile>> tiles;
};

/// How a kernel function treats the steps of a launch.
enum class Steps {
  /// It runs one.
  One,
  /// It loops over them, and computes indices ahead of the loop.
  Hoisted,
  /// It loops over them, and computes indices again in each.
  Repeated
};

/// What the pass was told.
struct Options {
  bool profile;
  int64_t smallKernel;
  /// Of an index, in all functions of a module.
  unsigned indexBits;
};

/// One kernel function.
class KernelLowering {
public:
  KernelLowering(KernelOp kernel, gpu::GPUModuleOp module, StringRef name, Steps steps, const Options &options)
      : kernel(kernel), module(module), name(name.str()), builder(kernel), steps(steps), profile(options.profile),
        indexBits(options.indexBits), bodies(this->name + "_body", options.smallKernel, functionNeeds(kernel)) {}

  LogicalResult check() {
    if (!kernel.getTarget().value_or("sm").starts_with("sm"))
      return kernel.emitError() << "is scheduled for '" << *kernel.getTarget() << "', expected a GPU architecture";
    WalkResult fits = kernel.walk([&](TileOp tile) {
      int64_t needed = sharedBytesOf(TileGeometry(tile), kernel.getThreads());
      if (needed <= sharedBytes())
        return WalkResult::advance();
      tile.emitError() << "needs " << needed << " bytes of shared memory, expected 'shared_bytes' of the kernel ("
                       << sharedBytes() << ") to cover it";
      return WalkResult::interrupt();
    });
    return failure(fits.wasInterrupted());
  }

  LaunchNeeds needs() { return {sharedBytes(), workspaceBytes(), overlapsLaunches()}; }

  /// Uses up the kernel.
  LogicalResult run() {
    // Ahead of all code: the ops are rewired as it is emitted.
    for (const PhaseInMemory &phase : phasesInMemory(kernel))
      layouts.try_emplace(phase.phase, phase, kernel.getThreads(), sharedBytes());
    chains = chainsOf(kernel);
    createFunction();
    if (overlapsLaunches())
      emitEarlierLaunchesWait(*context, kernel.getLoc());
    recordTime(kernel.getLoc());
    if (steps != Steps::One)
      beginStep();
    Block &body = kernel.getBody().front();
    for (Block::iterator at = body.begin(); at != body.end(); ++at) {
      const Chain *chain = chainFrom(*at);
      if (failed(chain ? lowerChain(*chain) : lower(*at)))
        return failure();
      if (chain)
        at = chain->phases.back()->getIterator();
    }
    bodies.share(function);
    kernel.erase();
    return success();
  }

private:
  int64_t sharedBytes() { return kernel.getSharedBytes().value_or(0); }
  // The times of a profile follow the arena.
  int64_t profileOffset() { return llvm::alignTo(barrierStateBytes + kernel.getArenaBytes().value_or(0), 8); }
  int64_t numEvents() {
    auto isEvent = [](Operation &op) { return isa<PhaseOp, BarrierOp>(op); };
    return profile ? 1 + llvm::count_if(kernel.getBody().front(), isEvent) : 0;
  }
  int64_t workspaceBytes() { return profileOffset() + numEvents() * kernel.getGrid() * 8; }
  bool overlapsLaunches() {
    std::optional<trainkernel::TargetFacts> facts = trainkernel::findTarget(kernel.getTarget().value_or(""));
    return facts && facts->overlapsLaunches;
  }
  void createFunction();
  LogicalResult lower(Operation &op);
  const Chain *chainFrom(Operation &op) const {
    auto found = llvm::find_if(chains, [&](const Chain &chain) { return chain.phases.front() == &op; });
    return found == chains.end() ? nullptr : found;
  }
  LogicalResult lowerChain(const Chain &chain);
  LogicalResult lowerPhases(const Chain &chain);
  Value onChip(BufferOp buffer);
  LogicalResult lowerBarrier(BarrierOp barrier);
  void beginStep();
  LogicalResult joinStep();
  LogicalResult endStep(RepeatOp repeat);
  void open(PhaseOp phase);
  bool canPrefetch() const;
  LogicalResult prefetch();
  LogicalResult lowerTiles();
  // Where CTAs are left out, what the others do is recorded on its own.
  LogicalResult recordTile(const OpenPhase::Tile &tile, function_ref<LogicalResult()> emit) {
    return context->leavesOut(tile.domain) ? emit() : bodies.record(builder, emit);
  }
  LogicalResult lowerTile(OpenPhase::Tile &tile);
  void recordTime(Location loc);
  // Loads are slower where a function does not know that its buffers are in global memory. All threads run it together,
  // up to its barriers: "convergent" keeps LLVM from giving threads a call of their own.
  static SharedBodies::Needs functionNeeds(KernelOp kernel) {
    return {gpu::AddressSpaceAttr::get(kernel.getContext(), gpu::AddressSpace::Global), {"convergent"}};
  }

  KernelOp kernel;
  gpu::GPUModuleOp module;
  std::string name;
  OpBuilder builder;
  Steps steps;
  bool profile;
  unsigned indexBits;
  int64_t recorded = 0;
  IRMapping buffers;
  DenseMap<Operation *, SharedLayout> layouts;
  SmallVector<Chain> chains;
  /// How far from a part's start the whole buffer begins, by first CTA, number of parts and bytes of one.
  std::map<std::tuple<int64_t, int64_t, int64_t>, Value> partStarts;
  gpu::GPUFuncOp function;
  SharedBodies bodies;
  std::optional<CtaContext> context;
  std::optional<StepLoop> loop;
  /// Whether the CTA has yet to wait for the step before.
  bool isApart = false;
  /// Whether copies may be under way.
  bool isCopying = false;
  OpenPhase current;
};
} // namespace

void KernelLowering::createFunction() {
  Location loc = kernel.getLoc();
  auto width = DataLayoutEntryAttr::get(builder.getIndexType(), builder.getI32IntegerAttr(indexBits));
  module->setAttr(DLTIDialect::kDataLayoutAttrName, DataLayoutSpecAttr::get(builder.getContext(), {width}));
  builder.setInsertionPointToEnd(&module.getBodyRegion().front());
  SmallVector<Type> types;
  for (Type type : kernel.getArgumentTypes())
    types.push_back(typeInMemory(cast<MemRefType>(type)));
  types.push_back(MemRefType::get(workspaceBytes(), builder.getI8Type()));
  unsigned workspace = types.size() - 1;
  if (steps != Steps::One)
    types.append(2, builder.getI32Type());
  function = gpu::GPUFuncOp::create(builder, loc, name, builder.getFunctionType(types, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), builder.getUnitAttr());
  int32_t threads = kernel.getThreads(), cluster = kernel.getCluster();
  function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), builder.getDenseI32ArrayAttr({threads, 1, 1}));
  function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), builder.getI32IntegerAttr(1));
  if (cluster > 1)
    function->setAttr(NVVM::NVVMDialect::getClusterDimAttrName(), builder.getDenseI32ArrayAttr({cluster, 1, 1}));
  Block &entry = function.getBody().front();
  for (auto [index, argument] : llvm::enumerate(kernel.getArguments()))
    buffers.map(argument, entry.getArgument(index));
  builder.setInsertionPointToStart(&entry);
  auto sharedType = MemRefType::get(ShapedType::kDynamic, builder.getI8Type(), AffineMap(),
                                    gpu::AddressSpaceAttr::get(builder.getContext(), gpu::AddressSpace::Workgroup));
  Value thread = gpu::ThreadIdOp::create(builder, loc, gpu::Dimension::x, builder.getIndexAttr(threads));
  Value cta = gpu::BlockIdOp::create(builder, loc, gpu::Dimension::x, builder.getIndexAttr(kernel.getGrid()));
  Value shared = gpu::DynamicSharedMemoryOp::create(builder, loc, sharedType);
  context.emplace(CtaContext{builder, thread, cta, threads, static_cast<int64_t>(kernel.getGrid()),
                             entry.getArgument(workspace), shared, indexBits,
                             [&](function_ref<LogicalResult()> emit) { return bodies.record(builder, emit); }});
  if (steps != Steps::One)
    loop.emplace(builder, kernel, LaunchSteps{entry.getArgument(workspace + 1), entry.getArgument(workspace + 2)},
                 indexBits);
}

LogicalResult KernelLowering::lower(Operation &op) {
  Location loc = op.getLoc();
  if (auto buffer = dyn_cast<BufferOp>(op)) {
    if (buffer.isOnChip()) {
      buffers.map(buffer.getResult(), onChip(buffer));
      return success();
    }
    if (!buffer.getOffset())
      return buffer.emitError("buffer has no offset, expected 'tk-plan-buffers' to have run");
    Value offset = loop ? loop->placeOf(buffer, barrierStateBytes)
                        : context->math(loc).constant(barrierStateBytes + *buffer.getOffset());
    buffers.map(buffer.getResult(), memref::ViewOp::create(builder, loc, typeInMemory(buffer.getType()),
                                                           context->workspace, offset, ValueRange())
                                        .getResult());
    return success();
  }
  if (auto barrier = dyn_cast<BarrierOp>(op))
    return lowerBarrier(barrier);
  if (auto phase = dyn_cast<PhaseOp>(op)) {
    if (current.phase != phase)
      open(phase);
    if (isApart && failed(joinStep()))
      return failure();
    if (failed(bodies.record(builder, [&] { return lowerTiles(); })))
      return failure();
    current = {};
    recordTime(loc);
    return success();
  }
  if (auto repeat = dyn_cast<RepeatOp>(op)) {
    return loop ? endStep(repeat) : success();
  }
  if (isa<ReturnOp>(op)) {
    gpu::ReturnOp::create(builder, loc);
    return success();
  }
  if (isa<CommitOp>(op))
    return op.emitError("commit is not resolved, expected 'tk-commit-state' to have run");
  cloneReshape(builder, op, buffers);
  return success();
}

// Other CTAs have nothing to do up to the end, not even the barriers.
LogicalResult KernelLowering::lowerChain(const Chain &chain) {
  PhaseOp first = chain.phases.front();
  Location loc = first.getLoc();
  if (current.phase != first)
    open(first);
  if (isApart && failed(joinStep()))
    return failure();
  bool holdsValues = llvm::any_of(chain.phases, [](PhaseOp phase) {
    return llvm::any_of(phase.getBody().front().getOps<TileOp>(), [](TileOp tile) { return tile.getInRegisters(); });
  });
  return bodies.recordSteps(builder, holdsValues, [&] {
    Value isMember;
    if (chain.ctas.count < context->grid) {
      IndexMath math = context->math(loc);
      Value place = context->cta;
      if (chain.ctas.firstCta != 0)
        place = math.rem(math.add(place, context->grid - chain.ctas.firstCta), context->grid);
      isMember = math.less(place, chain.ctas.count);
    }
    return context->when(loc, isMember, [&] { return lowerPhases(chain); });
  });
}

LogicalResult KernelLowering::lowerPhases(const Chain &chain) {
  HeldFragments held;
  context->chainCtas = chain.ctas;
  context->held = &held;
  auto leave = llvm::make_scope_exit([&] {
    context->chainCtas = std::nullopt;
    context->held = nullptr;
  });
  for (PhaseOp phase : chain.phases) {
    // A step ends with the barrier behind it.
    LogicalResult lowered = bodies.record(builder, [&] {
      if (failed(lower(*phase)))
        return failure();
      bool isLast = phase == chain.phases.back();
      for (Operation *op = phase->getNextNode(); !isLast && !isa<PhaseOp>(op); op = op->getNextNode())
        if (failed(lower(*op)))
          return failure();
      return success();
    });
    if (failed(lowered))
      return failure();
  }
  return success();
}

// A view of the whole buffer that has this CTA's part where it lies, so that indices are those of the buffer. Before
// the part and behind it is what the CTA never touches.
Value KernelLowering::onChip(BufferOp buffer) {
  Location loc = buffer.getLoc();
  IndexMath math = context->math(loc);
  trainkernel::Parts parts = partsOf(buffer);
  MemRefType type = typeInMemory(buffer.getType());
  int64_t bytes = bytesOfBuffer(buffer.getType()) / parts.count;
  Value &start = partStarts[{parts.firstCta, parts.count, bytes}];
  if (!start) {
    Value part = math.constant(0);
    if (parts.count > 1)
      part = math.rem(math.add(context->cta, context->grid - parts.firstCta), context->grid);
    start = math.mul(part, bytes);
  }
  Value begin = math.sub(math.constant(*buffer.getSharedAt()), start);
  return context->sharedView(loc, type.getShape(), type.getElementType(), begin);
}

void KernelLowering::recordTime(Location loc) {
  if (!profile)
    return;
  IndexMath math = context->math(loc);
  // Not before all threads have arrived.
  context->barrier(loc);
  Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, context->thread, math.constant(0));
  (void)context->when(loc, isFirst, [&] {
    Value time = NVVM::GlobalTimerOp::create(builder, loc, builder.getI64Type());
    auto type = MemRefType::get({numEvents(), context->grid}, builder.getI64Type());
    Value times = memref::ViewOp::create(builder, loc, type, context->workspace, math.constant(profileOffset()), {});
    memref::StoreOp::create(builder, loc, time, times, ValueRange{math.constant(recorded), context->cta});
    return success();
  });
  ++recorded;
}

// Makes the emitters of a phase's tile ops.
void KernelLowering::open(PhaseOp phase) {
  const SharedLayout &layout = layouts.at(phase);
  current = {phase, layout.isDisjoint, {}};
  bool isAheadOfBarrier = isa_and_nonnull<BarrierOp, RepeatOp, ReturnOp>(phase->getNextNode());
  for (auto [tile, offset] : llvm::zip(phase.getBody().front().getOps<TileOp>(), layout.offsets)) {
    bool isCopy = isCopyOntoChip(tile);
    // The tile's own operands are rewired to the function's buffers; the kernel is erased afterwards anyway.
    for (OpOperand &operand : tile->getOpOperands())
      operand.set(buffers.lookupOrDefault(operand.get()));
    current.tiles.push_back(std::make_unique<OpenPhase::Tile>(tile, offset));
    OpenPhase::Tile &opened = *current.tiles.back();
    opened.isCopy = isCopy;
    opened.isLastUse = layout.isDisjoint && isAheadOfBarrier;
    if (opened.domain.region.isContraction() && opened.domain.numTiles > 0)
      opened.emitter = createContraction(*context, opened.domain, offset, opened.isLastUse);
  }
}

bool KernelLowering::canPrefetch() const {
  if (!current.phase || !current.isDisjoint)
    return false;
  PhaseOp phase = current.phase;
  return llvm::any_of(phase.getBody().front().getOps<TileOp>(),
                      [](TileOp tile) { return !tile.getPrefetched().value_or(ArrayRef<int64_t>()).empty(); });
}

// Starts to fill the shared memory of the open phase. The CTA's threads have met.
LogicalResult KernelLowering::prefetch() {
  if (!canPrefetch())
    return success();
  // Half of the registers.
  int64_t registerBytes = 512;
  return bodies.record(builder, [&]() -> LogicalResult {
    for (std::unique_ptr<OpenPhase::Tile> &tile : current.tiles)
      if (tile->emitter && failed(recordTile(*tile, [&] { return tile->emitter->prefetch(registerBytes); })))
        return failure();
    return success();
  });
}

LogicalResult KernelLowering::lowerTiles() {
  for (std::unique_ptr<OpenPhase::Tile> &tile : current.tiles)
    if (failed(recordTile(*tile, [&] { return lowerTile(*tile); })))
      return failure();
  return success();
}

LogicalResult KernelLowering::lowerBarrier(BarrierOp barrier) {
  Location loc = barrier.getLoc();
  Scope scope = barrier.getScope();
  if (isApart && failed(joinStep()))
    return failure();
  if (std::exchange(isCopying, false))
    emitCopiesWait(*context, loc);
  Value arrival = emitArrival(*context, loc, scope);
  if (auto next = dyn_cast_or_null<PhaseOp>(barrier->getNextNode()))
    open(next);
  // Shared memory is in use until all threads are here; only a cluster's arrival does not wait for them.
  if (scope == Scope::Cluster && canPrefetch())
    context->barrier(loc);
  if (failed(prefetch()))
    return failure();
  emitWait(*context, loc, scope, arrival);
  recordTime(loc);
  return success();
}

//===----------------------------------------------------------------------===//
// Steps of a launch
//===----------------------------------------------------------------------===//

void KernelLowering::beginStep() {
  Location loc = kernel.getLoc();
  SmallVector<Value> initial;
  if (Type type = arrivalType(*context, kernel.getRepeat().getScope()))
    initial.push_back(arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type)));
  loop->begin(initial);
  if (steps == Steps::Repeated) {
    context->thread = computeAgain(*context, loc, context->thread);
    context->cta = computeAgain(*context, loc, context->cta);
  }
  loop->mapArguments(buffers);
  isApart = true;
}

// In the first phase of a step: waits for the step before, while what does not depend on it is on its way.
LogicalResult KernelLowering::joinStep() {
  isApart = false;
  Location loc = kernel.getLoc();
  if (failed(prefetch()))
    return failure();
  Scope scope = kernel.getRepeat().getScope();
  ValueRange arrival = loop->carried();
  if (scope == Scope::Cta)
    return success();
  return context->when(loc, loop->hasPrevious(), [&] {
    emitWait(*context, loc, scope, arrival.empty() ? Value() : arrival.front());
    return success();
  });
}

LogicalResult KernelLowering::endStep(RepeatOp repeat) {
  Location loc = repeat.getLoc();
  if (isApart && failed(joinStep()))
    return failure();
  Scope scope = repeat.getScope();
  Type type = arrivalType(*context, scope);
  auto arrival = scf::IfOp::create(builder, loc, type ? TypeRange(type) : TypeRange(), loop->hasNext(),
                                   /*withElseRegion=*/static_cast<bool>(type));
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(arrival.thenBlock());
    // The next step may fill shared memory before it waits.
    if (scope == Scope::Cluster)
      context->barrier(loc);
    Value token = emitArrival(*context, loc, scope);
    if (type) {
      scf::YieldOp::create(builder, loc, token);
      builder.setInsertionPointToStart(arrival.elseBlock());
      scf::YieldOp::create(builder, loc,
                           arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type)).getResult());
    }
  }
  loop->end(arrival.getResults());
  return success();
}

LogicalResult KernelLowering::lowerTile(OpenPhase::Tile &tile) {
  if (tile.emitter)
    return tile.emitter->run();
  if (tile.domain.numTiles == 0 || tile.isEmitted)
    return success();
  isCopying |= tile.isCopy;
  if (!tile.isPointwise())
    return tile.isCopy ? emitCopyOntoChip(*context, tile.domain)
                       : emitReduction(*context, tile.domain, tile.sharedOffset, tile.isLastUse);
  SmallVector<const TileDomain *> alike;
  for (std::unique_ptr<OpenPhase::Tile> &other : current.tiles)
    if (other->isPointwise() && !other->isEmitted && areAlike(tile.domain, other->domain)) {
      alike.push_back(&other->domain);
      other->isEmitted = true;
    }
  return emitPointwise(*context, alike);
}

namespace {
struct ConvertMegakernelToGPUPass : public megakernel::impl::ConvertMegakernelToGPUBase<ConvertMegakernelToGPUPass> {
  using ConvertMegakernelToGPUBase::ConvertMegakernelToGPUBase;

  void runOnOperation() override {
    getOperation()->setAttr(gpu::GPUDialect::getContainerModuleAttrName(), UnitAttr::get(&getContext()));
    unsigned indexBits = 32;
    for (auto kernel : getOperation().getOps<KernelOp>())
      if (needsWideIndices(kernel))
        indexBits = 64;
    for (auto kernel : llvm::make_early_inc_range(getOperation().getOps<KernelOp>()))
      if (failed(lowerKernel(kernel, indexBits)))
        return signalPassFailure();
    computeExactly(getOperation());
    roundInPairs(getOperation());
    lowerAbsolutes(getOperation());
  }

  // Wide indices double the integer work, so only kernels that need them have them. An index counts elements of an
  // argument or bytes of the workspace.
  bool needsWideIndices(KernelOp kernel) {
    int64_t largest =
        KernelLowering(kernel, nullptr, "", Steps::One, {profile, smallKernel, 32}).needs().workspaceBytes;
    for (Type type : kernel.getArgumentTypes())
      largest = std::max(largest, cast<MemRefType>(type).getNumElements());
    return largest > std::numeric_limits<int32_t>::max();
  }

  // Both kernels of a step are in one module: see `megakernel.kernel`.
  gpu::GPUModuleOp moduleOf(KernelOp kernel) {
    OpBuilder builder(kernel);
    StringRef name = kernel.getSymName();
    if (kernel.getStepCount() == StepCount::Several)
      name.consume_back("_many");
    std::string moduleName = (name + "_module").str();
    auto known = SymbolTable::lookupNearestSymbolFrom<gpu::GPUModuleOp>(kernel, builder.getStringAttr(moduleName));
    return known ? known : gpu::GPUModuleOp::create(builder, kernel.getLoc(), moduleName);
  }

  LogicalResult lowerKernel(KernelOp kernel, unsigned indexBits) {
    OpBuilder builder(kernel);
    std::string name = kernel.getSymName().str();
    gpu::GPUModuleOp module = moduleOf(kernel);
    RepeatOp repeat = kernel.getRepeat();
    bool isApart = repeat && !kernel.getStepCount() &&
                   llvm::range_size(kernel.getBody().front().getOps<PhaseOp>()) <= separatePhases;
    int64_t numTileOps = 0;
    kernel.walk([&](TileOp) { ++numTileOps; });
    bool isOneOfTwo = isApart || kernel.getStepCount();
    Steps repeated = isOneOfTwo && numTileOps <= hoistOps ? Steps::Hoisted : Steps::Repeated;
    Options options{profile, smallKernel, indexBits};
    std::string wholeName = isApart ? name + "_many" : name;
    KernelLowering whole(kernel, module, wholeName, repeat ? repeated : Steps::One, options);
    if (failed(whole.check()))
      return failure();
    LaunchNeeds needs = whole.needs();
    if (repeat)
      needs.repeated = wholeName;
    if (failed(describeKernel(getOperation(), kernel, needs)))
      return failure();
    if (isApart) {
      KernelOp once = cast<KernelOp>(builder.clone(*kernel));
      if (failed(KernelLowering(once, module, name, Steps::One, options).run()))
        return failure();
    }
    return whole.run();
  }
};
} // namespace
