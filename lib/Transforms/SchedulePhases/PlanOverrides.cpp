//===- PlanOverrides.cpp - what a user decides instead of the planner -----===//
//
// Nothing of it is ignored: what cannot be met is an error that says what can. All messages begin with "the plan", by
// which tk-compile knows them as its user's.
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/SchedulePhases/PlanOverrides.h"

#include "dialects/Megakernel/FusedRegion.h"
#include "lib/Analysis/TileChoice.h"
#include "lib/Analysis/TileGeometry.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

std::string mlir::megakernel::writeSizes(ArrayRef<int64_t> sizes) {
  std::string text;
  for (int64_t size : sizes)
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

std::string OpOverride::str() const {
  std::string name = "[" + std::to_string(phase) + "." + std::to_string(op) + "]=";
  return sizes.empty() ? "cta" + name + std::to_string(firstCta) : "tile" + name + writeSizes(sizes);
}

std::string PlanOverrides::str() const {
  SmallVector<std::string> parts;
  if (grid > 0)
    parts.push_back("grid=" + std::to_string(grid));
  if (cluster > 0)
    parts.push_back("cluster=" + std::to_string(cluster));
  for (const OpOverride &op : ops)
    parts.push_back(op.str());
  return llvm::join(parts, ",");
}

static bool parsePositive(StringRef text, int64_t &number) { return !text.getAsInteger(10, number) && number > 0; }

static bool parseOp(StringRef key, StringRef value, OpOverride &given) {
  bool isTile = key.consume_front("tile[");
  if ((!isTile && !key.consume_front("cta[")) || !key.consume_back("]"))
    return false;
  auto [phase, op] = key.split('.');
  if (phase.getAsInteger(10, given.phase) || op.getAsInteger(10, given.op))
    return false;
  if (!isTile)
    return !value.getAsInteger(10, given.firstCta) && given.firstCta >= 0;
  SmallVector<StringRef> parts;
  value.split(parts, 'x');
  for (StringRef part : parts)
    if (!parsePositive(part, given.sizes.emplace_back()))
      return false;
  return true;
}

FailureOr<PlanOverrides> PlanOverrides::parse(Operation *step, StringRef text) {
  PlanOverrides plan;
  SmallVector<StringRef> parts;
  text.split(parts, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  llvm::SmallDenseSet<StringRef> seen;
  for (StringRef part : parts) {
    auto [key, value] = part.split('=');
    OpOverride given;
    bool isRead = key == "grid"      ? parsePositive(value, plan.grid)
                  : key == "cluster" ? parsePositive(value, plan.cluster)
                                     : parseOp(key, value, given);
    if (!isRead)
      return step->emitError() << "the plan has '" << part
                               << "', expected grid=N, cluster=N, tile[PHASE.OP]=SIZES or cta[PHASE.OP]=N, such as "
                                  "tile[3.0]=64x64x256";
    if (!seen.insert(key).second)
      return step->emitError() << "the plan has '" << key << "' twice, expected it once";
    if (key.ends_with("]"))
      plan.ops.push_back(given);
  }
  return plan;
}

LogicalResult PlanOverrides::verifyLaunch(Operation *step, const TargetFacts &target) const {
  if (grid > mostCtas(target))
    return step->emitError() << "the plan's grid is " << grid << ", expected at most " << mostCtas(target)
                             << " CTAs, which run at once on " << target.name;
  if (cluster > target.maxCluster)
    return step->emitError() << "the plan's cluster is " << cluster << ", expected at most " << target.maxCluster
                             << " CTAs on " << target.name;
  if (grid > 0 && cluster > 0 && grid % cluster != 0)
    return step->emitError() << "the plan's grid is " << grid << " and its cluster " << cluster
                             << ", expected a grid of whole clusters, such as " << llvm::alignTo(grid, cluster);
  return success();
}

namespace {
/// What the sizes of an op's tiles may be.
struct SizeRules {
  SizeRules(FusedRegion &region) : region(region) {
    llvm::append_range(extents, region.parallelShape);
    llvm::append_range(extents, region.reductionShape);
  }

  /// Why these sizes cannot be, or nothing.
  std::string findFault(ArrayRef<int64_t> sizes) {
    if (sizes.size() != extents.size())
      return "expected " + std::to_string(extents.size()) + " sizes, for the domain " + writeSizes(extents);
    for (auto [dim, size] : llvm::enumerate(sizes))
      if (std::string fault = findFault(dim, size); !fault.empty())
        return fault;
    return "";
  }

private:
  std::string findFault(size_t dim, int64_t size) {
    std::string place = " in place " + std::to_string(dim) + " of the domain " + writeSizes(extents);
    bool isParallel = dim < region.parallelShape.size();
    if (region.isContraction()) {
      unsigned loop = isParallel ? region.parallelLoops[dim] : region.reductionLoops[dim - region.parallelShape.size()];
      ContractionLoops loops(region);
      bool isCut = llvm::is_contained({loops.m.back(), loops.n.back(), loops.k.back()}, loop);
      return isCut || size == 1 ? "" : "expected 1" + place;
    }
    if (!isParallel)
      return size == extents[dim] ? "" : "expected " + std::to_string(extents[dim]) + place + ", since sums stay whole";
    return size <= extents[dim] ? "" : "expected at most " + std::to_string(extents[dim]) + place;
  }

  FusedRegion &region;
  SmallVector<int64_t> extents;
};
} // namespace

LogicalResult mlir::megakernel::fixOp(FusedOp op, OpModel &model, const OpOverride &given, const TargetFacts &target) {
  if (given.sizes.empty()) {
    model.fixedCta = given.firstCta;
    return success();
  }
  FusedRegion region = FusedRegion::get(op.getBody());
  std::string fault = SizeRules(region).findFault(given.sizes);
  if (fault.empty()) {
    OpPlan plan = planOf(op.getBody(), model, given.sizes);
    model.isFixed = true;
    model.fixedTile = plan.tile;
    model.fixedSizes = plan.sizes;
    fault = findFault(model, target);
  }
  if (fault.empty())
    return success();
  return op.emitError() << "the plan has " << given.str() << ", " << fault;
}
