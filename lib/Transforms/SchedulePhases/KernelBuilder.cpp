//===- KernelBuilder.cpp - builds the scheduled form ----------------------===//

#include "lib/Transforms/SchedulePhases/KernelBuilder.h"

#include "lib/Analysis/Costs.h"
#include "lib/Analysis/SharedSpace.h"
#include "lib/Analysis/TileChoice.h"
#include "lib/Analysis/TileGeometry.h"
#include "lib/Analysis/Views.h"
#include "lib/Scheduling/TileSizes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

static MemRefType bufferType(Type tensor) {
  auto type = cast<RankedTensorType>(tensor);
  // Nothing looks at the shape of what has no elements, and not all shapes have a form in LLVM then.
  if (type.getNumElements() == 0)
    return MemRefType::get({0}, type.getElementType());
  return MemRefType::get(type.getShape(), type.getElementType());
}

// A result that there is nothing to compute of.
static bool isWithoutElements(Operation &op) {
  auto empty = dyn_cast<tensor::EmptyOp>(op);
  return empty && empty.getType().hasStaticShape() && empty.getType().getNumElements() == 0;
}

namespace {
class KernelBuilder {
public:
  KernelBuilder(StepOp step, const TargetFacts &target, const PlanOverrides &overrides)
      : step(step), target(target), overrides(overrides), builder(step) {}

  /// Chooses the plan, for launches of any number of steps.
  LogicalResult choose() {
    if (failed(collectNodes()))
      return failure();
    model = modelStep();
    return choosePlan();
  }

  /// Plans for launches of one step and of several, where they should have one each.
  std::optional<PlanPair> planApart() const;

  /// Takes a plan that was made for launches of this many steps.
  LogicalResult take(StepCount count, const GridPlan &given) {
    stepCount = count;
    plan = chosen = given;
    phases = numberPhases(plan.places);
    return nodes.empty() ? collectNodes() : success();
  }

  /// Replaces the step.
  LogicalResult build() {
    createKernel();
    bindOutputs();
    createPhases();
    createCommits();
    ReturnOp::create(builder, step.getLoc());
    if (failed(setSharedBytes()))
      return failure();
    step.erase();
    return success();
  }

private:
  LogicalResult collectNodes() {
    for (Operation &op : step.getBody().front().without_terminator()) {
      if (auto fused = dyn_cast<FusedOp>(op))
        nodes.push_back(fused);
      else if (!isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op) && !isWithoutElements(op))
        return op.emitError() << "'" << op.getName()
                              << "' stands outside of a fused op, expected 'tk-inline-pointwise' to have run";
    }
    return success();
  }

  StepModel modelStep();
  void describeReads(FusedOp node, OpModel &op);
  bool isUpdated(unsigned argument);
  LogicalResult choosePlan();
  LogicalResult overridePlan();
  FailureOr<unsigned> findNode(const OpOverride &given);
  DictionaryAttr describePlan();
  void createKernel();
  void bindOutputs();
  void bindOutput(unsigned index, Value returned);
  Value bufferOf(Value tensor);
  Value viewAs(Location loc, Value buffer, Value tensor);
  void createPhases();
  TileOp createTile(FusedOp fused, const OpPlan &opPlan);
  void createCopy(Location loc, Value source, Value target);
  void createCommits();
  LogicalResult setSharedBytes();

  StepOp step;
  const TargetFacts &target;
  const PlanOverrides &overrides;
  OpBuilder builder;
  SmallVector<FusedOp> nodes;
  SmallVector<unsigned> phases;
  StepModel model;
  /// What is built, and what the planner would build by itself.
  GridPlan plan, chosen;
  /// Where launches of one step and of several have a kernel each, that for which this one is.
  std::optional<StepCount> stepCount;
  /// The nodes that the overrides of ops name.
  SmallVector<unsigned> fixedNodes;
  /// The tile op of each node.
  SmallVector<TileOp> tiles;
  KernelOp kernel;
  IRMapping buffers;
  /// (value, output argument): the output is written beside the value's own buffer.
  SmallVector<std::pair<Value, Value>> copies, commits;
};
} // namespace

void KernelBuilder::describeReads(FusedOp node, OpModel &op) {
  op.readsState = op.readsInputs = false;
  for (Value input : node.getInputs())
    if (auto argument = dyn_cast<BlockArgument>(skipReshapes(input)))
      (isUpdated(argument.getArgNumber()) ? op.readsState : op.readsInputs) = true;
}

bool KernelBuilder::isUpdated(unsigned argument) {
  return llvm::any_of(llvm::seq<unsigned>(0, step.getNumResults()),
                      [&](unsigned result) { return step.getUpdatedArg(result) == argument; });
}

StepModel KernelBuilder::modelStep() {
  StepModel model;
  DenseMap<Operation *, unsigned> numberOf;
  llvm::StringMap<int> operands;
  for (auto [number, node] : llvm::enumerate(nodes)) {
    model.ops.push_back(modelOf(node.getBody()));
    if (std::optional<std::string> operand = sharedOperandOf(node))
      model.ops.back().sharedOperand = operands.try_emplace(*operand, operands.size()).first->second;
    describeReads(node, model.ops.back());
    numberOf[node] = number;
  }
  SmallVector<SmallVector<unsigned>> readers(step.getNumArguments());
  for (auto [number, node] : llvm::enumerate(nodes)) {
    llvm::SetVector<Operation *> producers;
    for (Value input : node.getInputs()) {
      Value source = skipReshapes(input);
      if (Operation *producer = source.getDefiningOp())
        producers.insert(producer);
      else
        readers[cast<BlockArgument>(source).getArgNumber()].push_back(number);
    }
    for (Operation *producer : producers)
      model.dependences.push_back(
          {numberOf.lookup(producer), static_cast<unsigned>(number), sharedRowsOf(cast<FusedOp>(producer), node)});
  }
  for (auto [index, value] : llvm::enumerate(step.getBody().front().getTerminator()->getOperands())) {
    std::optional<unsigned> updated = step.getUpdatedArg(index);
    Operation *writer = skipReshapes(value).getDefiningOp();
    if (!updated || !writer)
      continue;
    for (unsigned reader : readers[*updated])
      model.preferences.emplace_back(reader, numberOf.lookup(writer));
  }
  return model;
}

// The node that an override names; the report names it likewise.
FailureOr<unsigned> KernelBuilder::findNode(const OpOverride &given) {
  SmallVector<std::string> names;
  DenseMap<unsigned, unsigned> sizeOfPhase;
  for (auto [number, phase] : llvm::enumerate(phases)) {
    unsigned op = sizeOfPhase[phase]++;
    if (given.phase == phase && given.op == op)
      return static_cast<unsigned>(number);
  }
  unsigned numPhases = sizeOfPhase.size();
  for (unsigned phase = 0; phase < numPhases; ++phase)
    names.push_back(std::to_string(phase) + ".0" +
                    (sizeOfPhase[phase] > 1 ? " to ." + std::to_string(sizeOfPhase[phase] - 1) : ""));
  return step.emitError() << "the plan has " << given.str()
                          << ", which names no operation, expected one of: " << llvm::join(names, ", ");
}

// Names are of the plan on the given grid, in which no tiles are overridden yet.
LogicalResult KernelBuilder::overridePlan() {
  plan = planGrid(model, target, overrides.grid, overrides.cluster);
  phases = numberPhases(plan.places);
  for (const OpOverride &given : overrides.ops) {
    FailureOr<unsigned> number = findNode(given);
    if (failed(number) || failed(fixOp(nodes[*number], model.ops[*number], given, target)))
      return failure();
    fixedNodes.push_back(*number);
  }
  if (!fixedNodes.empty())
    plan = planGrid(model, target, overrides.grid, overrides.cluster);
  return success();
}

LogicalResult KernelBuilder::choosePlan() {
  plan = chosen = planGrid(model, target);
  if (!overrides.empty() && failed(overridePlan()))
    return failure();
  PhaseProblem problem;
  problem.numNodes = nodes.size();
  // Whether a dependence is local is proved by the barriers.
  for (const Dependence &edge : model.dependences)
    problem.dependences.push_back({edge.before, edge.after, /*isLocal=*/true});
  std::string fault = verifyPhases(problem, plan.places);
  phases = numberPhases(plan.places);
  return fault.empty() ? success() : step.emitError() << "internal error in the phase schedule: " << fault;
}

// What is long gains little by another plan, and is long to compile.
std::optional<PlanPair> KernelBuilder::planApart() const {
  constexpr unsigned mostPhases = 12;
  bool isLong = llvm::any_of(phases, [](unsigned phase) { return phase >= mostPhases; });
  if (target.kind != TargetKind::Cuda || !overrides.empty() || isLong)
    return std::nullopt;
  return planRepeated(model, target, plan);
}

DictionaryAttr KernelBuilder::describePlan() {
  auto describe = [&](int64_t grid, int64_t cluster, double time) {
    return builder.getDictionaryAttr({
        builder.getNamedAttr("grid", builder.getI64IntegerAttr(grid)),
        builder.getNamedAttr("cluster", builder.getI64IntegerAttr(cluster)),
        builder.getNamedAttr("ns", builder.getI64IntegerAttr(toNanoseconds(time))),
    });
  };
  SmallVector<Attribute> considered;
  for (const Candidate &candidate : chosen.considered)
    considered.push_back(describe(candidate.grid, candidate.cluster, candidate.time));
  NamedAttrList attributes;
  attributes.set("considered", builder.getArrayAttr(considered));
  attributes.set("chosen", describe(chosen.grid, chosen.cluster, chosen.time));
  if (!overrides.empty()) {
    attributes.set("overrides", builder.getStringAttr(overrides.str()));
    attributes.set("overridden", describe(plan.grid, plan.cluster, plan.time));
  }
  return attributes.getDictionary(builder.getContext());
}

void KernelBuilder::createKernel() {
  SmallVector<Type> types;
  SmallVector<Attribute> attributes;
  for (unsigned i = 0, e = step.getNumArguments(); i < e; ++i) {
    types.push_back(bufferType(step.getArgumentTypes()[i]));
    attributes.push_back(step.getArgAttrDict(i));
  }
  for (unsigned i = 0, e = step.getNumResults(); i < e; ++i) {
    types.push_back(bufferType(step.getResultTypes()[i]));
    attributes.push_back(step.getResultAttrDict(i));
  }
  kernel = KernelOp::create(builder, step.getLoc(), step.getSymNameAttr(),
                            TypeAttr::get(builder.getFunctionType(types, {})), builder.getArrayAttr(attributes),
                            /*res_attrs=*/nullptr, builder.getI64IntegerAttr(plan.grid),
                            builder.getI64IntegerAttr(plan.cluster), builder.getI64IntegerAttr(target.threads),
                            builder.getStringAttr(target.name),
                            /*shared_bytes=*/nullptr, /*arena_bytes=*/nullptr, describePlan(), /*launch_ns=*/nullptr,
                            /*predicted_ns=*/nullptr, step.getFp32Attr(),
                            stepCount ? StepCountAttr::get(builder.getContext(), *stepCount) : StepCountAttr());
  Block &body = kernel.getBody().emplaceBlock();
  for (auto [index, type] : llvm::enumerate(types))
    body.addArgument(type, index < step.getNumArguments() ? step.getArgument(index).getLoc() : step.getLoc());
  for (unsigned i = 0, e = step.getNumArguments(); i < e; ++i)
    buffers.map(step.getArgument(i), body.getArgument(i));
  builder.setInsertionPointToEnd(&body);
}

// A fused result that is returned lives in the output itself, unless it is a new state or already has a home.
void KernelBuilder::bindOutputs() {
  for (auto [index, returned] : llvm::enumerate(step.getBody().front().getTerminator()->getOperands()))
    bindOutput(index, returned);
}

void KernelBuilder::bindOutput(unsigned index, Value returned) {
  Value output = kernel.getArgument(step.getNumArguments() + index);
  if (cast<MemRefType>(output.getType()).getNumElements() == 0)
    return;
  if (step.getResultRole(index) == Role::NewState) {
    commits.emplace_back(returned, output);
    return;
  }
  Value source = skipReshapes(returned);
  if (!source.getDefiningOp() || buffers.contains(source)) {
    copies.emplace_back(returned, output);
    return;
  }
  buffers.map(source, viewAs(returned.getLoc(), output, source));
}

// A view of a contiguous buffer as the shape of `tensor`, going through one dimension.
Value KernelBuilder::viewAs(Location loc, Value buffer, Value tensor) {
  MemRefType wanted = bufferType(tensor.getType());
  auto type = cast<MemRefType>(buffer.getType());
  if (type == wanted)
    return buffer;
  if (type.getRank() > 1) {
    ReassociationIndices all = llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    buffer = memref::CollapseShapeOp::create(builder, loc, buffer, ArrayRef<ReassociationIndices>{all});
  }
  if (wanted.getRank() == 0)
    return memref::CollapseShapeOp::create(builder, loc, wanted, buffer, ArrayRef<ReassociationIndices>{});
  if (wanted.getRank() == 1 && type.getRank() != 0)
    return buffer;
  SmallVector<ReassociationIndices> groups;
  if (cast<MemRefType>(buffer.getType()).getRank() == 1)
    groups.push_back(llvm::to_vector(llvm::seq<int64_t>(0, wanted.getRank())));
  return memref::ExpandShapeOp::create(builder, loc, wanted, buffer, groups);
}

Value KernelBuilder::bufferOf(Value tensor) {
  if (Value known = buffers.lookupOrNull(tensor))
    return known;
  Value source = skipReshapes(tensor);
  if (source != tensor)
    return viewAs(tensor.getLoc(), bufferOf(source), tensor);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&kernel.getBody().front());
  Value buffer = BufferOp::create(builder, tensor.getLoc(), bufferType(tensor.getType()));
  buffers.map(tensor, buffer);
  return buffer;
}

TileOp KernelBuilder::createTile(FusedOp fused, const OpPlan &opPlan) {
  SmallVector<Value> inputs, outputs;
  OpBuilder::InsertPoint inside = builder.saveInsertionPoint();
  builder.setInsertionPoint(inside.getBlock()->getParentOp());
  for (Value input : fused.getInputs())
    inputs.push_back(bufferOf(input));
  for (Value result : fused.getResults())
    outputs.push_back(bufferOf(result));
  builder.restoreInsertionPoint(inside);
  auto tile = TileOp::create(builder, fused.getLoc(), inputs, outputs, tileSizesOf(fused.getBody(), opPlan));
  tile.setPredictedAttr(costAttr(builder.getContext(), opPlan.cost));
  // Both kernels of a step add up in the same order.
  if (stepCount && opPlan.groups > 0)
    tile.setGroups(opPlan.groups);
  tile.getBody().takeBody(fused.getBody());
  return tile;
}

void KernelBuilder::createPhases() {
  tiles.resize(nodes.size());
  unsigned numPhases = 0;
  for (unsigned phase : phases)
    numPhases = std::max(numPhases, phase + 1);
  for (unsigned phase = 0; phase < numPhases; ++phase) {
    auto op = PhaseOp::create(builder, step.getLoc());
    Block &body = op.getBody().emplaceBlock();
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&body);
    for (auto [number, node] : llvm::enumerate(nodes))
      if (phases[number] == phase) {
        tiles[number] = createTile(node, plan.ops[number]);
        tiles[number].setFirstCta(plan.ops[number].firstCta % plan.grid);
      }
  }
}

void KernelBuilder::createCopy(Location loc, Value source, Value destination) {
  auto type = cast<MemRefType>(source.getType());
  auto tile = TileOp::create(builder, loc, source, destination, chooseElementTile(type.getShape(), target.threads * 4));
  Block &body = tile.getBody().emplaceBlock();
  Value argument = body.addArgument(RankedTensorType::get(type.getShape(), type.getElementType()), loc);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(&body);
  YieldOp::create(builder, loc, argument);
}

// Outputs that share a value with another one are copied in a phase after all others.
void KernelBuilder::createCommits() {
  SmallVector<std::pair<Value, Value>> sources;
  for (auto [value, output] : copies)
    sources.emplace_back(bufferOf(value), output);
  if (!sources.empty()) {
    auto op = PhaseOp::create(builder, step.getLoc());
    Block &body = op.getBody().emplaceBlock();
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&body);
    for (auto [source, output] : sources)
      createCopy(step.getLoc(), source, output);
  }
  for (auto [value, output] : commits)
    CommitOp::create(builder, value.getLoc(), bufferOf(value), output);
}

LogicalResult KernelBuilder::setSharedBytes() {
  if (target.kind != TargetKind::Cuda)
    return success();
  for (auto [fixed, number] : llvm::zip(overrides.ops, fixedNodes)) {
    TileOp tile = tiles[number];
    int64_t needed = sharedBytesOf(TileGeometry(tile), target.threads);
    if (needed <= target.sharedBytes)
      continue;
    return tile.emitError() << "the plan has " << fixed.str() << ", which needs " << needed
                            << " bytes of shared memory, expected at most " << target.sharedBytes
                            << "; the planner's tiles are "
                            << writeSizes(tileSizesOf(tile.getBody(), chosen.ops[number]));
  }
  kernel.setSharedBytes(sharedBytesOf(kernel, target.sharedBytes));
  return success();
}

LogicalResult mlir::megakernel::buildKernel(StepOp step, const TargetFacts &target, const PlanOverrides &overrides,
                                            bool oneKernel) {
  KernelBuilder one(step, target, overrides);
  if (failed(one.choose()))
    return failure();
  std::optional<PlanPair> plans = oneKernel ? std::nullopt : one.planApart();
  if (!plans)
    return one.build();
  OpBuilder builder(step);
  builder.setInsertionPointAfter(step);
  auto copy = cast<StepOp>(builder.clone(*step));
  copy.setSymName((step.getSymName() + "_many").str());
  KernelBuilder several(copy, target, overrides);
  return success(succeeded(one.take(StepCount::One, plans->one)) && succeeded(one.build()) &&
                 succeeded(several.take(StepCount::Several, plans->several)) && succeeded(several.build()));
}
