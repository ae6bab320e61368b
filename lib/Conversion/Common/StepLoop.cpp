//===- StepLoop.cpp - the loop over the steps of a launch -----------------===//

#include "lib/Conversion/Common/StepLoop.h"

#include "lib/Analysis/KernelAccesses.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::megakernel;

static constexpr llvm::StringLiteral entryAlignment = "megakernel.alignment";

//===----------------------------------------------------------------------===//
// Buffers and their addresses
//===----------------------------------------------------------------------===//

// Addresses have 64 bits where an index may have 32, and an entry can lie further away than an index reaches. So they
// are computed on pointers. The casts are to what buffers become when they are lowered, and fold with that.
static Type descriptorType(MemRefType type, unsigned indexBits) {
  MLIRContext *context = type.getContext();
  bool isShared = gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(type);
  Type pointer = LLVM::LLVMPointerType::get(context, isShared ? 3 : 0), index = IntegerType::get(context, indexBits);
  SmallVector<Type> fields{pointer, pointer, index};
  if (type.getRank() > 0)
    fields.append(2, LLVM::LLVMArrayType::get(index, type.getRank()));
  return LLVM::LLVMStructType::getLiteral(context, fields);
}

Value mlir::megakernel::addressOf(OpBuilder &builder, Value buffer, unsigned indexBits) {
  Type lowered = descriptorType(cast<MemRefType>(buffer.getType()), indexBits);
  Value descriptor = UnrealizedConversionCastOp::create(builder, buffer.getLoc(), lowered, buffer).getResult(0);
  return LLVM::ExtractValueOp::create(builder, buffer.getLoc(), descriptor, 1);
}

static Value bufferAt(OpBuilder &builder, Location loc, MemRefType type, Value address, unsigned indexBits) {
  Value descriptor = LLVM::PoisonOp::create(builder, loc, descriptorType(type, indexBits));
  auto insert = [&](Value value, ArrayRef<int64_t> place) {
    descriptor = LLVM::InsertValueOp::create(builder, loc, descriptor, value, place);
  };
  auto number = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(builder, loc, builder.getIntegerAttr(builder.getIntegerType(indexBits), value));
  };
  insert(address, 0);
  insert(address, 1);
  insert(number(0), 2);
  int64_t stride = type.getNumElements();
  for (auto [dim, size] : llvm::enumerate(type.getShape())) {
    // Of no elements nothing is read.
    stride /= std::max<int64_t>(size, 1);
    insert(number(size), {3, static_cast<int64_t>(dim)});
    insert(number(stride), {4, static_cast<int64_t>(dim)});
  }
  return UnrealizedConversionCastOp::create(builder, loc, type, descriptor).getResult(0);
}

std::optional<int64_t> mlir::megakernel::alignmentOfEntry(Value buffer) {
  Operation *entry = rootOfBuffer(buffer).getDefiningOp();
  auto alignment = entry ? entry->getAttrOfType<IntegerAttr>(entryAlignment) : IntegerAttr();
  return alignment ? std::optional<int64_t>(alignment.getInt()) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

Value StepLoop::constant(int64_t value) {
  return arith::ConstantOp::create(builder, kernel.getLoc(), builder.getIntegerAttr(launch.steps.getType(), value));
}

// The step and the entry of the batch come before what the caller carries. A launch has a step, so that the condition
// is at the end.
void StepLoop::begin(ValueRange initial) {
  SmallVector<Value> values{constant(0), constant(0)};
  llvm::append_range(values, initial);
  SmallVector<Type> types(ValueRange(values).getTypes());
  loop = scf::WhileOp::create(builder, kernel.getLoc(), types, values);
  SmallVector<Location> locs(types.size(), kernel.getLoc());
  Block *before = builder.createBlock(&loop.getBefore(), {}, types, locs);
  Block *after = builder.createBlock(&loop.getAfter(), {}, types, locs);
  scf::YieldOp::create(builder, kernel.getLoc(), after->getArguments());
  builder.setInsertionPointToStart(before);
}

ValueRange StepLoop::carried() { return loop.getBeforeArguments().drop_front(2); }

Value StepLoop::hasPrevious() {
  return arith::CmpIOp::create(builder, kernel.getLoc(), arith::CmpIPredicate::ne, loop.getBeforeArguments()[0],
                               constant(0));
}

Value StepLoop::hasNext() {
  Value next = arith::AddIOp::create(builder, kernel.getLoc(), loop.getBeforeArguments()[0], constant(1));
  return arith::CmpIOp::create(builder, kernel.getLoc(), arith::CmpIPredicate::ult, next, launch.steps);
}

Value StepLoop::placeOf(BufferOp buffer, int64_t start) {
  Location loc = buffer.getLoc();
  auto index = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(builder, loc, value); };
  Value first = index(start + *buffer.getOffset());
  if (!buffer.getAlternates())
    return first;
  Value isOdd = arith::AndIOp::create(builder, loc, loop.getBeforeArguments()[0], constant(1));
  Value odd = arith::IndexCastUIOp::create(builder, loc, builder.getIndexType(), isOdd);
  Value behind = arith::MulIOp::create(builder, loc, odd, index(buffer.getBytesOfPlace()));
  return arith::AddIOp::create(builder, loc, first, behind);
}

void StepLoop::end(ValueRange carried) {
  Location loc = kernel.getLoc();
  Value more = hasNext();
  Value step = arith::AddIOp::create(builder, loc, loop.getBeforeArguments()[0], constant(1));
  Value entry = arith::AddIOp::create(builder, loc, loop.getBeforeArguments()[1], constant(1));
  Value isRound = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, entry, launch.ring);
  SmallVector<Value> values{step, arith::SelectOp::create(builder, loc, isRound, constant(0), entry)};
  llvm::append_range(values, carried);
  scf::ConditionOp::create(builder, loc, more, values);
  builder.setInsertionPointAfter(loop);
}

// The buffer `entry` times its own size further on.
Value StepLoop::advance(Value buffer, Value entry) {
  Location loc = kernel.getLoc();
  auto type = cast<MemRefType>(buffer.getType());
  int64_t bytes = bytesOfBuffer(type);
  Type i64 = builder.getI64Type();
  Value wide = entry.getType() == i64 ? entry : arith::ExtUIOp::create(builder, loc, i64, entry).getResult();
  Value size = arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(bytes));
  Value distance = arith::MulIOp::create(builder, loc, wide, size);
  Value address = LLVM::GEPOp::create(builder, loc, LLVM::LLVMPointerType::get(builder.getContext()),
                                      builder.getI8Type(), addressOf(builder, buffer, indexBits), distance);
  Value advanced = bufferAt(builder, loc, type, address, indexBits);
  advanced.getDefiningOp()->setAttr(entryAlignment, builder.getI64IntegerAttr(bytes & -bytes));
  return advanced;
}

void StepLoop::mapArguments(IRMapping &buffers) {
  Location loc = kernel.getLoc();
  Value step = loop.getBeforeArguments()[0], entry = loop.getBeforeArguments()[1], isLater;
  IRMapping first = buffers;
  for (auto [index, argument] : llvm::enumerate(kernel.getArguments())) {
    Value buffer = first.lookup(argument);
    if (kernel.getArgRole(index) == Role::Batch)
      buffers.map(argument, advance(buffer, entry));
    else if (kernel.isOutput(index) && !kernel.getUpdatedArg(index))
      buffers.map(argument, advance(buffer, step));
    else if (std::optional<unsigned> output = kernel.getUpdatingArg(index)) {
      if (!isLater)
        isLater = hasPrevious();
      Value updated = first.lookup(kernel.getArgument(*output));
      Value address = LLVM::SelectOp::create(builder, loc, isLater, addressOf(builder, updated, indexBits),
                                             addressOf(builder, buffer, indexBits));
      buffers.map(argument, bufferAt(builder, loc, cast<MemRefType>(buffer.getType()), address, indexBits));
    }
  }
}
