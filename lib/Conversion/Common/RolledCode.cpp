//===- RolledCode.cpp - code that recurs in a row, as a loop --------------===//

#include "lib/Conversion/Common/RolledCode.h"

#include "lib/Conversion/Common/Fingerprint.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <map>

using namespace mlir;
using namespace mlir::megakernel;

// Two rounds are not much more code than one.
static constexpr size_t minRounds = 3;
// A round of a recurrence, forward or backward, has few phases.
static constexpr size_t maxRunsPerRound = 8;

namespace {
/// A part of a buffer that starts at byte `shift`, or `behind` bytes ahead of that, unless null.
struct PartOfBuffer {
  memref::ViewOp view;
  int64_t shift;
  Value behind;
};
} // namespace

static std::optional<PartOfBuffer> matchPart(Value value) {
  auto view = value.getDefiningOp<memref::ViewOp>();
  if (!view || !view.getSizes().empty())
    return std::nullopt;
  if (std::optional<int64_t> shift = getConstantIntValue(view.getByteShift()))
    return PartOfBuffer{view, *shift, nullptr};
  auto difference = view.getByteShift().getDefiningOp<arith::SubIOp>();
  std::optional<int64_t> shift = difference ? getConstantIntValue(difference.getLhs()) : std::nullopt;
  return shift ? std::optional(PartOfBuffer{view, *shift, difference.getRhs()}) : std::nullopt;
}

// Code of equal keys differs only in constant indices and in which parts of the same buffers it uses.
static std::vector<uintptr_t> keyOf(const Fingerprint &print) {
  std::vector<uintptr_t> key = print.key;
  auto add = [&](Value value) { key.push_back(reinterpret_cast<uintptr_t>(value.getAsOpaquePointer())); };
  for (OpOperand *use : print.outside) {
    std::optional<PartOfBuffer> part = matchPart(use->get());
    key.push_back(part.has_value());
    add(part ? part->view.getSource() : use->get());
    if (part)
      add(part->behind);
  }
  return key;
}

namespace {
/// Numbers of which each round has its own.
class RoundNumbers {
public:
  RoundNumbers(Operation *kernel, size_t rounds) : kernel(kernel), rounds(rounds) {}

  /// Registers a list of one number for each round.
  size_t find(const std::vector<int64_t> &values) {
    auto [entry, isNew] = known.try_emplace(values, lists.size());
    if (isNew)
      lists.push_back(values);
    return entry->second;
  }

  /// Starts the loop over the rounds. Rows of the table are read a round ahead.
  scf::ForOp begin(OpBuilder &builder, Location loc);
  /// The number of a list in the round that the loop is at.
  Value at(size_t list) const { return current[list]; }
  /// Ends the body of the loop.
  void end(OpBuilder &builder, Location loc) { scf::YieldOp::create(builder, loc, following); }

private:
  static std::optional<int64_t> strideOf(ArrayRef<int64_t> values) {
    int64_t stride = values[1] - values[0];
    for (size_t round = 1; round < values.size(); ++round)
      if (values[round] - values[round - 1] != stride)
        return std::nullopt;
    return stride;
  }
  LLVM::GlobalOp createTable();
  Value constant(OpBuilder &builder, Location loc, int64_t value) {
    return arith::ConstantIndexOp::create(builder, loc, value);
  }
  SmallVector<Value> readRow(OpBuilder &builder, Location loc, LLVM::GlobalOp table, Value round);

  Operation *kernel;
  size_t rounds;
  std::map<std::vector<int64_t>, size_t> known;
  SmallVector<std::vector<int64_t>> lists;
  /// The lists that the table has.
  SmallVector<size_t> tabled;
  SmallVector<Value> current, following;
};
} // namespace

// Row by row, so that a round touches one line of the constant cache.
LLVM::GlobalOp RoundNumbers::createTable() {
  SmallVector<APInt> numbers;
  for (size_t round = 0; round < rounds; ++round)
    for (size_t list : tabled)
      numbers.emplace_back(64, lists[list][round]);
  OpBuilder builder(kernel);
  Type i64 = builder.getI64Type(), type = LLVM::LLVMArrayType::get(i64, numbers.size());
  auto shape = RankedTensorType::get(numbers.size(), i64);
  SymbolTable symbols(kernel->getParentOp());
  constexpr unsigned constantMemory = 4;
  auto table =
      LLVM::GlobalOp::create(builder, kernel->getLoc(), type, /*isConstant=*/true, LLVM::Linkage::Internal, "rounds",
                             DenseElementsAttr::get(shape, numbers), /*alignment=*/16, constantMemory);
  symbols.insert(table);
  return table;
}

SmallVector<Value> RoundNumbers::readRow(OpBuilder &builder, Location loc, LLVM::GlobalOp table, Value round) {
  SmallVector<Value> row;
  Type i64 = builder.getI64Type();
  Value base = LLVM::AddressOfOp::create(builder, loc, table);
  Value first = arith::MulIOp::create(builder, loc, round, constant(builder, loc, tabled.size()));
  for (size_t column = 0; column < tabled.size(); ++column) {
    Value place = arith::AddIOp::create(builder, loc, first, constant(builder, loc, column));
    Value wide = arith::IndexCastUIOp::create(builder, loc, i64, place);
    Value address = LLVM::GEPOp::create(builder, loc, base.getType(), i64, base, ArrayRef<LLVM::GEPArg>{wide});
    Value number = LLVM::LoadOp::create(builder, loc, i64, address, /*alignment=*/8, /*isVolatile=*/false,
                                        /*isNonTemporal=*/false, /*isInvariant=*/true);
    row.push_back(arith::IndexCastOp::create(builder, loc, builder.getIndexType(), number));
  }
  return row;
}

scf::ForOp RoundNumbers::begin(OpBuilder &builder, Location loc) {
  SmallVector<Value> initial;
  for (auto [list, values] : llvm::enumerate(lists))
    if (!strideOf(values)) {
      tabled.push_back(list);
      initial.push_back(constant(builder, loc, values.front()));
    }
  LLVM::GlobalOp table = tabled.empty() ? LLVM::GlobalOp() : createTable();
  Value zero = constant(builder, loc, 0), one = constant(builder, loc, 1);
  auto loop = scf::ForOp::create(builder, loc, zero, constant(builder, loc, rounds), one, initial);
  builder.setInsertionPointToStart(loop.getBody());
  Value round = loop.getInductionVar();
  if (table) {
    Value next = arith::AddIOp::create(builder, loc, round, one);
    following =
        readRow(builder, loc, table, arith::MinUIOp::create(builder, loc, next, constant(builder, loc, rounds - 1)));
  }
  size_t column = 0;
  for (ArrayRef<int64_t> values : lists) {
    std::optional<int64_t> stride = strideOf(values);
    if (!stride) {
      current.push_back(loop.getRegionIterArgs()[column++]);
      continue;
    }
    Value distance = arith::MulIOp::create(builder, loc, round, constant(builder, loc, *stride));
    current.push_back(arith::AddIOp::create(builder, loc, constant(builder, loc, values.front()), distance));
  }
  return loop;
}

namespace {
/// Rounds of one loop, with what their code has from outside.
struct Rounds {
  explicit Rounds(ArrayRef<CodeRun> all) : runs(all) {
    for (const CodeRun &run : all)
      prints.emplace_back(run.first, run.last);
  }

  bool canRoll() const {
    std::vector<uintptr_t> first = keyOf(prints.front());
    return llvm::all_of(prints, [&](const Fingerprint &print) { return print.isClosed && keyOf(print) == first; });
  }
  void roll(Operation *kernel);

private:
  /// Parts of buffers that the rounds use in one place, and that place.
  struct Views {
    OpOperand *use;
    PartOfBuffer first;
    size_t shifts;
  };
  SmallVector<Views> differingViews(RoundNumbers &numbers) const;
  SmallVector<std::pair<Operation *, size_t>> differingIndices(RoundNumbers &numbers) const;

  SmallVector<CodeRun> runs;
  SmallVector<Fingerprint> prints;
};
} // namespace

SmallVector<Rounds::Views> Rounds::differingViews(RoundNumbers &numbers) const {
  SmallVector<Views> views;
  for (auto [place, use] : llvm::enumerate(prints.front().outside)) {
    std::vector<int64_t> shifts;
    std::optional<PartOfBuffer> first = matchPart(use->get());
    if (!first)
      continue;
    for (const Fingerprint &print : prints)
      shifts.push_back(matchPart(print.outside[place]->get())->shift);
    if (!llvm::all_equal(shifts))
      views.push_back({use, *first, numbers.find(shifts)});
  }
  return views;
}

SmallVector<std::pair<Operation *, size_t>> Rounds::differingIndices(RoundNumbers &numbers) const {
  SmallVector<std::pair<Operation *, size_t>> indices;
  for (size_t place = 0; place < prints.front().indices.size(); ++place) {
    std::vector<int64_t> values;
    for (const Fingerprint &print : prints)
      values.push_back(arith::ConstantIndexOp(print.indices[place]).value());
    if (!llvm::all_equal(values))
      indices.emplace_back(prints.front().indices[place], numbers.find(values));
  }
  return indices;
}

void mlir::megakernel::eraseRun(const CodeRun &run) {
  for (Operation *op = run.last, *before = run.first->getPrevNode(); op != before;) {
    Operation *previous = op->getPrevNode();
    op->erase();
    op = previous;
  }
}

// The first round becomes the body.
void Rounds::roll(Operation *kernel) {
  const CodeRun &body = runs.front();
  Location loc = body.first->getLoc();
  RoundNumbers numbers(kernel, runs.size());
  SmallVector<Views> views = differingViews(numbers);
  SmallVector<std::pair<Operation *, size_t>> indices = differingIndices(numbers);
  OpBuilder builder(body.first);
  scf::ForOp loop = numbers.begin(builder, loc);
  std::map<std::tuple<const void *, const void *, const void *, size_t>, Value> known;
  for (const Views &view : views) {
    memref::ViewOp first = view.first.view;
    Value source = first.getSource(), behind = view.first.behind;
    Value &own = known[{first.getType().getAsOpaquePointer(), source.getAsOpaquePointer(), behind.getAsOpaquePointer(),
                        view.shifts}];
    if (!own) {
      Value shift = numbers.at(view.shifts);
      if (behind)
        shift = arith::SubIOp::create(builder, loc, shift, behind);
      own = memref::ViewOp::create(builder, loc, first.getType(), source, shift, ValueRange());
    }
    view.use->set(own);
  }
  for (auto [index, list] : indices)
    index->getResult(0).replaceAllUsesWith(numbers.at(list));
  loop.getBody()->getOperations().splice(builder.getInsertionPoint(), body.first->getBlock()->getOperations(),
                                         body.first->getIterator(), std::next(body.last->getIterator()));
  builder.setInsertionPointToEnd(loop.getBody());
  numbers.end(builder, loc);
  for (auto [index, list] : indices)
    index->erase();
  for (const CodeRun &run : llvm::drop_begin(runs))
    eraseRun(run);
}

namespace {
/// Where code recurs: from which run on, how many runs make a round, and how many rounds there are.
struct Recurrence {
  size_t first = 0, runsPerRound = 0, rounds = 0;
  size_t covered() const { return runsPerRound * rounds; }
};
} // namespace

// The longest recurrence that starts at run `first`; the shortest round where several are as long.
static Recurrence findRecurrence(ArrayRef<size_t> kinds, size_t first) {
  Recurrence best;
  for (size_t period = 1; period <= maxRunsPerRound && first + period <= kinds.size(); ++period) {
    size_t end = first + period;
    while (end < kinds.size() && kinds[end] == kinds[end - period])
      ++end;
    Recurrence found{first, period, (end - first) / period};
    if (found.rounds >= minRounds && found.covered() > best.covered())
      best = found;
  }
  return best;
}

SmallVector<size_t> mlir::megakernel::rollCode(Operation *kernel, ArrayRef<CodeRun> runs) {
  SmallVector<size_t> kinds;
  std::map<std::vector<uintptr_t>, size_t> known;
  for (const CodeRun &run : runs)
    kinds.push_back(known.try_emplace(keyOf(Fingerprint(run.first, run.last)), known.size()).first->second);
  SmallVector<size_t> others;
  for (size_t at = 0; at < runs.size();) {
    Recurrence found = findRecurrence(kinds, at);
    SmallVector<CodeRun> rounds;
    for (size_t round = 0; round < found.rounds; ++round) {
      size_t start = at + round * found.runsPerRound;
      rounds.push_back({runs[start].first, runs[start + found.runsPerRound - 1].last});
    }
    if (Rounds loop(rounds); !rounds.empty() && loop.canRoll()) {
      loop.roll(kernel);
      at += found.covered();
    } else {
      others.push_back(at++);
    }
  }
  return others;
}
