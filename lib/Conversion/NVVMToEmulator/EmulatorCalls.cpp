//===- EmulatorCalls.cpp - calls of the emulator --------------------------===//

#include "lib/Conversion/NVVMToEmulator/EmulatorCalls.h"

#include "lib/Analysis/SourceLines.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::megakernel;

Value EmulatorCalls::call(Operation *op, StringRef name, Type result, ValueRange arguments) {
  OpBuilder builder(op);
  Type type = result ? result : LLVM::LLVMVoidType::get(builder.getContext());
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!function) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(module.getBody());
    auto signature = LLVM::LLVMFunctionType::get(type, llvm::to_vector(arguments.getTypes()));
    function = LLVM::LLVMFuncOp::create(builder, module.getLoc(), name, signature);
  }
  auto made = LLVM::CallOp::create(builder, op->getLoc(), function, arguments);
  return result ? made.getResult() : Value();
}

Value EmulatorCalls::constant(Operation *op, int32_t value) {
  OpBuilder builder(op);
  return LLVM::ConstantOp::create(builder, op->getLoc(), builder.getI32IntegerAttr(value));
}

Value EmulatorCalls::pack(Operation *op, Type type, ValueRange values) {
  OpBuilder builder(op);
  Value result = LLVM::PoisonOp::create(builder, op->getLoc(), type);
  for (auto [index, value] : llvm::enumerate(values))
    result = LLVM::InsertValueOp::create(builder, op->getLoc(), result, value, index);
  return result;
}

Value EmulatorCalls::site(Operation *op, StringRef what) {
  SmallVector<std::string> lines = sourceLines(op->getLoc());
  std::string text = what.str();
  if (!lines.empty())
    text += " of " + llvm::join(lines, ", ");
  sites.push_back(std::move(text));
  return constant(op, sites.size() - 1);
}

std::string EmulatorCalls::describeSites() const { return llvm::join(sites, "\n"); }

std::pair<Value, Value> EmulatorCalls::scratch(Operation *op) {
  auto function = op->getParentOfType<LLVM::LLVMFuncOp>();
  auto [found, isNew] = scratches.try_emplace(function);
  if (!isNew)
    return found->second;
  OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  auto make = [&](int64_t count) -> Value {
    Value size = LLVM::ConstantOp::create(builder, op->getLoc(), builder.getI32IntegerAttr(count));
    return LLVM::AllocaOp::create(builder, op->getLoc(), pointer, builder.getI32Type(), size);
  };
  return found->second = {make(maxOperands), make(maxResults)};
}

Value EmulatorCalls::at(Operation *op, Value array, int32_t index) {
  OpBuilder builder(op);
  return LLVM::GEPOp::create(builder, op->getLoc(), array.getType(), builder.getI32Type(), array,
                             ArrayRef<LLVM::GEPArg>{index});
}

void EmulatorCalls::store(Operation *op, Value array, ValueRange values) {
  OpBuilder builder(op);
  for (auto [index, value] : llvm::enumerate(values))
    LLVM::StoreOp::create(builder, op->getLoc(), value, at(op, array, index));
}

Value EmulatorCalls::load(Operation *op, Value array, Type type) {
  OpBuilder builder(op);
  auto structure = dyn_cast<LLVM::LLVMStructType>(type);
  if (!structure)
    return LLVM::LoadOp::create(builder, op->getLoc(), type, array);
  SmallVector<Value> values;
  for (auto [index, element] : llvm::enumerate(structure.getBody()))
    values.push_back(LLVM::LoadOp::create(builder, op->getLoc(), element, at(op, array, index)));
  return pack(op, type, values);
}
