//===- Describe.cpp - a kernel's part of the manifest ---------------------===//

#include "lib/Conversion/Common/Describe.h"

#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/SourceLines.h"
#include "lib/Analysis/TileGeometry.h"
#include "lib/Scheduling/TargetTable.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::megakernel;
namespace json = llvm::json;

// Scalar operations of one evaluation of every body of the region, by the number of elements that each runs over.
static int64_t countFlops(TileOp tile) {
  int64_t flops = 0;
  for (auto generic : tile.getBody().front().getOps<linalg::GenericOp>()) {
    int64_t iterations = 1, perIteration = 0;
    for (int64_t range : generic.getStaticLoopRanges())
      iterations *= range;
    for (Operation &op : generic.getRegion().front().without_terminator()) {
      bool isArithmetic = llvm::any_of(op.getResultTypes(), [](Type type) { return isa<FloatType>(type); }) &&
                          !op.hasTrait<OpTrait::ConstantLike>() && !isa<CastOpInterface>(op);
      perIteration += isArithmetic;
    }
    flops += iterations * perIteration;
  }
  return flops;
}

static int64_t bytesOf(OperandRange buffers) {
  int64_t bytes = 0;
  for (Value buffer : buffers)
    bytes += bytesOfBuffer(cast<MemRefType>(buffer.getType()));
  return bytes;
}

// The results of the step that a tile op writes, by their paths.
static json::Array resultsOf(KernelOp kernel, TileOp tile) {
  json::Array paths;
  for (Value output : tile.getOutputs())
    if (auto argument = dyn_cast<BlockArgument>(rootOfBuffer(output)))
      if (auto path =
              kernel.getArgAttrOfType<StringAttr>(argument.getArgNumber(), MegakernelDialect::getPathAttrName()))
        paths.push_back(path.getValue());
  return paths;
}

// A predicted time in nanoseconds, `times` over; null where there is none.
static json::Value describeCost(std::optional<CostAttr> cost, int64_t times = 1) {
  if (!cost)
    return nullptr;
  return json::Object{{"latency", cost->getLatency() * times},
                      {"operands", cost->getOperands() * times},
                      {"multiply", cost->getMultiply() * times},
                      {"epilogue", cost->getEpilogue() * times}};
}

static json::Value describeNumber(std::optional<uint64_t> number) {
  return number ? json::Value(static_cast<int64_t>(*number)) : json::Value(nullptr);
}

// Dictionaries, lists, whole numbers and texts, as the plan of a kernel has them.
static json::Value describeAttribute(Attribute attribute) {
  if (auto dictionary = dyn_cast_or_null<DictionaryAttr>(attribute)) {
    json::Object object;
    for (NamedAttribute entry : dictionary)
      object[entry.getName().strref()] = describeAttribute(entry.getValue());
    return object;
  }
  if (auto list = dyn_cast_or_null<ArrayAttr>(attribute)) {
    json::Array array;
    for (Attribute entry : list)
      array.push_back(describeAttribute(entry));
    return array;
  }
  if (auto number = dyn_cast_or_null<IntegerAttr>(attribute))
    return number.getInt();
  if (auto text = dyn_cast_or_null<StringAttr>(attribute))
    return text.getValue();
  return nullptr;
}

static json::Object describePlan(KernelOp kernel) {
  json::Object plan;
  if (DictionaryAttr given = kernel.getPlanAttr())
    plan = std::move(*describeAttribute(given).getAsObject());
  plan["launch_ns"] = describeNumber(kernel.getLaunchNs());
  plan["predicted_ns"] = describeNumber(kernel.getPredictedNs());
  return plan;
}

static json::Object describeTile(KernelOp kernel, TileOp tile, std::string name) {
  TileGeometry domain(tile);
  StringRef kind = !domain.region.reduction ? "pointwise" : domain.region.isContraction() ? "contraction" : "reduction";
  json::Array sizes;
  for (int64_t size : tile.getSizes())
    sizes.push_back(size);
  json::Array lines;
  for (std::string &line : sourceLines(tile.getLoc()))
    lines.push_back(std::move(line));
  // The CTA with the most tiles.
  int64_t rounds = llvm::divideCeil(domain.numTiles, static_cast<int64_t>(kernel.getGrid()));
  return json::Object{{"name", std::move(name)},
                      {"kind", kind},
                      {"lines", std::move(lines)},
                      {"makes", resultsOf(kernel, tile)},
                      {"tiles", domain.numTiles},
                      {"sizes", std::move(sizes)},
                      {"flops", countFlops(tile)},
                      {"bytes_read", bytesOf(tile.getInputs())},
                      {"bytes_written", bytesOf(tile.getOutputs())},
                      {"predicted", describeCost(tile.getPredicted(), rounds)}};
}

static json::Array describeSchedule(KernelOp kernel) {
  json::Array schedule;
  json::Value barrier = nullptr, barrierTime = nullptr;
  for (Operation &op : kernel.getBody().front()) {
    if (auto barrierOp = dyn_cast<BarrierOp>(op)) {
      barrier = stringifyScope(barrierOp.getScope());
      barrierTime = describeNumber(barrierOp.getPredictedNs());
    }
    auto phase = dyn_cast<PhaseOp>(op);
    if (!phase)
      continue;
    json::Array tiles;
    for (auto tile : phase.getBody().front().getOps<TileOp>())
      tiles.push_back(describeTile(kernel, tile, std::to_string(schedule.size()) + "." + std::to_string(tiles.size())));
    schedule.push_back(json::Object{{"barrier_before", std::move(barrier)},
                                    {"barrier_ns", std::move(barrierTime)},
                                    {"predicted", describeCost(phase.getPredicted())},
                                    {"ops", std::move(tiles)}});
    barrier = nullptr;
    barrierTime = nullptr;
  }
  return schedule;
}

// How many threads of a CPU have enough to do: what another one saves must be more than meeting it at each barrier
// costs, and other programs' threads may be on its CPU.
static int64_t countUsefulWorkers(KernelOp kernel) {
  constexpr double worthwhile = 40; // microseconds
  trainkernel::TargetFacts facts = *trainkernel::findTarget("cpu");
  double time = 0;
  kernel.walk([&](TileOp tile) {
    int64_t bytes = bytesOf(tile.getInputs()) + bytesOf(tile.getOutputs());
    time += countFlops(tile) / 2.0 / facts.multiplyRate + bytes * facts.timePerByte;
  });
  return std::clamp<int64_t>(static_cast<int64_t>(time / worthwhile), 1, trainkernel::mostCtas(facts));
}

// The first version of the manifest in which launches of several steps have a kernel of their own.
static constexpr int64_t versionOfTwoKernels = 4;

static json::Object describeLaunch(KernelOp kernel, const LaunchNeeds &needs) {
  int64_t grid = kernel.getGrid(), cluster = kernel.getCluster();
  return json::Object{{"symbol", kernel.getSymName()},
                      {"grid", json::Array{grid, 1, 1}},
                      {"cluster", json::Array{cluster, 1, 1}},
                      {"threads", static_cast<int64_t>(kernel.getThreads())},
                      {"shared_bytes", needs.sharedBytes},
                      {"cooperative", grid > cluster},
                      {"overlaps_launches", needs.overlapsLaunches},
                      {"workspace_bytes", needs.workspaceBytes},
                      {"workspace_align", 256},
                      {"plan", describePlan(kernel)},
                      {"schedule", describeSchedule(kernel)}};
}

LogicalResult mlir::megakernel::describeKernel(ModuleOp module, KernelOp kernel, const LaunchNeeds &needs) {
  StringRef name = MegakernelDialect::getManifestAttrName();
  auto given = module->getAttrOfType<StringAttr>(name);
  if (!given)
    return success();
  llvm::Expected<json::Value> parsed = json::parse(given.getValue());
  json::Object *manifest = parsed ? parsed->getAsObject() : nullptr;
  if (!manifest) {
    llvm::consumeError(parsed.takeError());
    return module.emitError() << "'" << name << "' is not a JSON object";
  }
  json::Object described = describeLaunch(kernel, needs);
  json::Object repeat;
  if (RepeatOp op = kernel.getRepeat())
    repeat = json::Object{{"symbol", needs.repeated}, {"barrier", stringifyScope(op.getScope())}};
  if (kernel.getStepCount() == StepCount::Several) {
    json::Object *one = manifest->getObject("kernel");
    if (!one)
      return kernel.emitError() << "is for launches of several steps alone, expected a kernel for one step before it";
    repeat["kernel"] = std::move(described);
    (*one)["repeat"] = std::move(repeat);
    (*manifest)["version"] = versionOfTwoKernels;
  } else {
    if (!repeat.empty())
      described["repeat"] = std::move(repeat);
    (*manifest)["kernel"] = std::move(described);
  }
  if (!manifest->getObject("numerics"))
    (*manifest)["numerics"] = json::Object{};
  (*manifest->getObject("numerics"))["fp32_matmul"] = stringifyFp32(kernel.getFp32().value_or(Fp32::IEEE));
  json::Object *target = manifest->getObject("target");
  if (target && kernel.getTarget() == "cpu")
    (*target)["workers"] = countUsefulWorkers(kernel);
  std::string text;
  llvm::raw_string_ostream(text) << *parsed;
  module->setAttr(name, StringAttr::get(module.getContext(), text));
  return success();
}
