//===- SharedBodies.cpp - one function for code that recurs ---------------===//

#include "lib/Conversion/Common/SharedBodies.h"

#include "lib/Conversion/Common/Fingerprint.h"
#include "lib/Conversion/Common/RolledCode.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <map>
#include <set>

using namespace mlir;
using namespace mlir::megakernel;

// Two copies are not much more to compile than one, and a call takes longer than a few ops.
static constexpr size_t minCopies = 3;
static constexpr int64_t minBody = 100;
// Where tiles and slices start may differ. A body that differs in more would compute what it should know.
static constexpr size_t maxIndexParameters = 4;

// What every function has for itself: the index of a thread, shared memory, a constant.
static bool isAvailable(Value value) {
  Operation *op = value.getDefiningOp();
  return op && op->getNumOperands() == 0 && op->getNumRegions() == 0 && isMemoryEffectFree(op);
}

// A buffer is passed as its address alone.
static bool isPassable(Value value) {
  auto buffer = dyn_cast<MemRefType>(value.getType());
  return !buffer || isAvailable(value) || (buffer.getLayout().isIdentity() && buffer.hasStaticShape());
}

/// Parts that are alike. The first becomes the function.
struct SharedBodies::Group {
  SmallVector<Part *> parts;
  SmallVector<Fingerprint> prints;

  /// One operand or constant index in all parts.
  SmallVector<Value> operandsAt(size_t place) const {
    return llvm::map_to_vector(prints, [&](const Fingerprint &print) { return print.outside[place]->get(); });
  }
  std::vector<int64_t> indicesAt(size_t place) const {
    std::vector<int64_t> values;
    for (const Fingerprint &print : prints)
      values.push_back(arith::ConstantIndexOp(print.indices[place]).value());
    return values;
  }
  size_t numIndexParameters() const {
    std::set<std::vector<int64_t>> different;
    for (size_t place = 0; place < prints.front().indices.size(); ++place)
      if (std::vector<int64_t> values = indicesAt(place); !llvm::all_equal(values))
        different.insert(values);
    return different.size();
  }
  bool pays() const {
    return parts.size() >= minCopies && prints.front().numOps >= minBody &&
           llvm::all_of(prints, [](const Fingerprint &print) {
             return print.isClosed &&
                    llvm::all_of(print.outside, [](OpOperand *use) { return isPassable(use->get()); });
           });
  }
};

// The op ahead of where the builder is, or null.
static Operation *opBefore(OpBuilder &builder) {
  Block::iterator point = builder.getInsertionPoint();
  return point == builder.getInsertionBlock()->begin() ? nullptr : &*std::prev(point);
}

LogicalResult SharedBodies::record(OpBuilder &builder, function_ref<LogicalResult()> emit) {
  Block *block = builder.getInsertionBlock();
  Operation *before = opBefore(builder);
  std::list<Part> *outer = current;
  Part &part = outer->emplace_back();
  current = &part.inner;
  LogicalResult emitted = emit();
  current = outer;
  Operation *last = opBefore(builder);
  if (last != before) {
    part.first = before ? before->getNextNode() : &block->front();
    part.last = last;
  }
  return emitted;
}

LogicalResult SharedBodies::recordSteps(OpBuilder &builder, bool holdsValues, function_ref<LogicalResult()> emit) {
  LogicalResult emitted = record(builder, emit);
  current->back().hasSteps = true;
  current->back().holdsValues = holdsValues;
  return emitted;
}

void SharedBodies::rollSteps(Operation *kernel, Part &part) {
  SmallVector<CodeRun> runs;
  part.inner.remove_if([](const Part &step) { return !step.first; });
  for (Part &step : part.inner)
    runs.push_back({step.first, step.last});
  SmallVector<size_t> others = rollCode(kernel, runs);
  size_t number = 0;
  part.inner.remove_if([&](const Part &) { return part.holdsValues || !llvm::is_contained(others, number++); });
}

SmallVector<SharedBodies::Part *> SharedBodies::filled(std::list<Part> &parts) {
  SmallVector<Part *> found;
  for (Part &part : parts)
    if (part.first)
      found.push_back(&part);
  return found;
}

SmallVector<func::FuncOp> SharedBodies::share(Operation *kernel) {
  int64_t numOps = 0;
  kernel->walk([&](Operation *) { ++numOps; });
  if (numOps <= smallKernel)
    return functions;
  for (Part &part : parts)
    if (part.hasSteps && part.first)
      rollSteps(kernel, part);
  shareParts(kernel, filled(parts));
  return functions;
}

// In the order of the first part of each.
std::vector<SharedBodies::Group> SharedBodies::groupsOf(ArrayRef<Part *> parts, bool withSameIndices) {
  std::vector<Group> groups;
  std::map<std::vector<uintptr_t>, size_t> known;
  for (Part *part : parts) {
    Fingerprint print(part->first, part->last);
    std::vector<uintptr_t> key = print.key;
    if (withSameIndices)
      for (arith::ConstantIndexOp index : print.indices)
        key.push_back(index.value());
    auto [entry, isNew] = known.try_emplace(std::move(key), groups.size());
    if (isNew)
      groups.emplace_back();
    groups[entry->second].parts.push_back(part);
    groups[entry->second].prints.push_back(std::move(print));
  }
  return groups;
}

void SharedBodies::shareParts(Operation *kernel, ArrayRef<Part *> parts) {
  SmallVector<Part *> inner;
  auto shareGroup = [&](Group &group) {
    if (group.pays())
      return functions.push_back(outline(kernel, group));
    for (Part *part : group.parts)
      llvm::append_range(inner, filled(part->inner));
  };
  for (Group &group : groupsOf(parts, /*withSameIndices=*/false)) {
    if (group.numIndexParameters() <= maxIndexParameters) {
      shareGroup(group);
      continue;
    }
    for (Group &alike : groupsOf(group.parts, /*withSameIndices=*/true))
      shareGroup(alike);
  }
  if (!inner.empty())
    shareParts(kernel, inner);
}

// Constants before each part.
static SmallVector<Value> createIndices(ArrayRef<Operation *> before, ArrayRef<int64_t> values) {
  SmallVector<Value> constants;
  for (auto [op, value] : llvm::zip_equal(before, values)) {
    OpBuilder builder(op);
    constants.push_back(arith::ConstantIndexOp::create(builder, op->getLoc(), value));
  }
  return constants;
}

/// What a function is called with: for each parameter a list of values, one of each part.
class SharedBodies::Parameters {
public:
  explicit Parameters(const Group &group)
      : firstOps(llvm::map_to_vector(group.parts, [](const Part *part) { return part->first; })) {}

  /// The parameter that has these values.
  size_t find(ArrayRef<Value> values) {
    std::vector<void *> key;
    for (Value value : values)
      key.push_back(value.getAsOpaquePointer());
    auto [entry, isNew] = ofValues.try_emplace(std::move(key), byParameter.size());
    if (isNew)
      byParameter.emplace_back(values);
    return entry->second;
  }
  size_t find(const std::vector<int64_t> &indices) {
    auto [entry, isNew] = ofIndices.try_emplace(indices);
    if (isNew)
      entry->second = find(createIndices(firstOps, indices));
    return entry->second;
  }
  ArrayRef<SmallVector<Value>> all() const { return byParameter; }

private:
  SmallVector<Operation *> firstOps;
  SmallVector<SmallVector<Value>> byParameter;
  std::map<std::vector<void *>, size_t> ofValues;
  std::map<std::vector<int64_t>, size_t> ofIndices;
};

/// Where the body has what is not its own, with the numbers of parameters.
struct SharedBodies::Uses {
  SmallVector<std::pair<OpOperand *, size_t>> passed;
  SmallVector<std::pair<Operation *, size_t>> indices;
  /// Parts of a buffer, with the buffer and the byte at which they start.
  SmallVector<std::tuple<OpOperand *, size_t, size_t>> views;
  /// What the function has for itself.
  SmallVector<OpOperand *> available;
  /// Of the parameters, as the body knows them.
  SmallVector<Type> types;
};

// Where all values are parts of one buffer at constant places: that buffer and those places.
static std::optional<std::pair<Value, std::vector<int64_t>>> matchViews(ArrayRef<Value> values) {
  std::vector<int64_t> shifts;
  auto first = values.front().getDefiningOp<memref::ViewOp>();
  for (Value value : values) {
    auto view = value.getDefiningOp<memref::ViewOp>();
    std::optional<int64_t> shift = view ? getConstantIntValue(view.getByteShift()) : std::nullopt;
    if (!shift || view.getSource() != first.getSource())
      return std::nullopt;
    shifts.push_back(*shift);
  }
  return std::pair(first.getSource(), shifts);
}

// Places in the arena are passed as numbers: addresses would be computed at the start of the kernel, and be kept in
// registers up to their calls.
SharedBodies::Uses SharedBodies::usesOf(const Group &group, Parameters &parameters) {
  Uses uses;
  const Fingerprint &body = group.prints.front();
  for (auto [place, use] : llvm::enumerate(body.outside)) {
    SmallVector<Value> values = group.operandsAt(place);
    if (llvm::all_equal(values) && isAvailable(values.front()))
      uses.available.push_back(use);
    else if (auto views = matchViews(values))
      uses.views.emplace_back(use, parameters.find(SmallVector<Value>(values.size(), views->first)),
                              parameters.find(views->second));
    else
      uses.passed.emplace_back(use, parameters.find(values));
  }
  for (auto [place, index] : llvm::enumerate(body.indices))
    if (std::vector<int64_t> values = group.indicesAt(place); !llvm::all_equal(values))
      uses.indices.emplace_back(index, parameters.find(values));
  return uses;
}

Type SharedBodies::passedType(Type type) const {
  auto buffer = dyn_cast<MemRefType>(type);
  return buffer && needs.bufferSpace && !buffer.getMemorySpace()
             ? MemRefType::get(buffer.getShape(), buffer.getElementType(), MemRefLayoutAttrInterface(),
                               needs.bufferSpace)
             : type;
}

static Value castSpace(OpBuilder &builder, Location loc, Value value, Type type) {
  return value.getType() == type ? value : memref::MemorySpaceCastOp::create(builder, loc, type, value).getResult();
}

func::FuncOp SharedBodies::createFunction(Operation *kernel, Location loc, ArrayRef<Type> types) {
  OpBuilder builder(kernel);
  std::string symbol = name + std::to_string(functions.size());
  auto function = func::FuncOp::create(builder, loc, symbol, builder.getFunctionType(types, {}));
  function.setPrivate();
  // LLVM's own attribute, since func's no_inline is lost on the way to LLVM.
  SmallVector<StringRef> attributes{"noinline"};
  llvm::append_range(attributes, needs.attributes);
  function->setAttr("passthrough", builder.getStrArrayAttr(attributes));
  function->setAttr("llvm.linkage", LLVM::LinkageAttr::get(builder.getContext(), LLVM::Linkage::Internal));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  func::ReturnOp::create(builder, loc);
  return function;
}

// Takes the body out of its block. `inside` are the function's own values of the parameters.
void SharedBodies::moveBody(const Group &group, const Uses &uses, func::FuncOp function) {
  Block &entry = function.getBody().front();
  OpBuilder builder = OpBuilder::atBlockBegin(&entry);
  SmallVector<Value> inside;
  for (auto [argument, type] : llvm::zip_equal(entry.getArguments(), uses.types))
    inside.push_back(castSpace(builder, function.getLoc(), argument, type));
  for (auto [use, parameter] : uses.passed)
    use->set(inside[parameter]);
  std::map<std::tuple<size_t, size_t, const void *>, Value> views;
  for (auto [use, buffer, shift] : uses.views) {
    auto type = cast<MemRefType>(use->get().getType());
    Value &view = views[{buffer, shift, type.getAsOpaquePointer()}];
    if (!view)
      view = memref::ViewOp::create(builder, function.getLoc(), type, inside[buffer], inside[shift], ValueRange());
    use->set(view);
  }
  for (auto [index, parameter] : uses.indices)
    index->getResult(0).replaceAllUsesWith(inside[parameter]);
  IRMapping own;
  for (OpOperand *use : uses.available) {
    if (!own.contains(use->get()))
      builder.clone(*use->get().getDefiningOp(), own);
    use->set(own.lookup(use->get()));
  }
  const Part &body = *group.parts.front();
  entry.getOperations().splice(entry.getTerminator()->getIterator(), body.first->getBlock()->getOperations(),
                               body.first->getIterator(), std::next(body.last->getIterator()));
  for (auto [index, parameter] : uses.indices)
    index->erase();
}

func::FuncOp SharedBodies::outline(Operation *kernel, const Group &group) {
  Parameters parameters(group);
  Uses uses = usesOf(group, parameters);
  SmallVector<Type> types;
  for (ArrayRef<Value> values : parameters.all()) {
    uses.types.push_back(values.front().getType());
    types.push_back(passedType(uses.types.back()));
  }
  func::FuncOp function = createFunction(kernel, group.parts.front()->first->getLoc(), types);
  for (auto [copy, part] : llvm::enumerate(group.parts)) {
    Location loc = part->first->getLoc();
    OpBuilder builder(part->first);
    SmallVector<Value> operands;
    for (auto [values, type] : llvm::zip_equal(parameters.all(), types))
      operands.push_back(castSpace(builder, loc, values[copy], type));
    func::CallOp::create(builder, loc, function, operands);
  }
  for (auto [number, values] : llvm::enumerate(parameters.all()))
    if (llvm::all_of(values, [](Value value) { return value.getDefiningOp<memref::AllocaOp>(); }))
      function.setArgAttr(number, "llvm.noalias", UnitAttr::get(function.getContext()));
  moveBody(group, uses, function);
  for (const Part *part : llvm::drop_begin(group.parts))
    eraseRun({part->first, part->last});
  return function;
}
