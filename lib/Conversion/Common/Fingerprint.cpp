//===- Fingerprint.cpp - what a piece of code does ------------------------===//

#include "lib/Conversion/Common/Fingerprint.h"

using namespace mlir;
using namespace mlir::megakernel;

// Neither is the number of a value.
static constexpr size_t isOutside = ~size_t(0), endOfBlock = ~size_t(1);

Fingerprint::Fingerprint(Operation *first, Operation *last) {
  for (Operation *op = first, *end = last->getNextNode(); op != end; op = op->getNextNode())
    addOperation(*op);
  isClosed &= usesSeen == uses;
}

void Fingerprint::addDefinitions(ValueRange values) {
  addNumber(values.size());
  for (Value value : values) {
    add(value.getType().getAsOpaquePointer());
    inside.try_emplace(value, inside.size());
    uses += std::distance(value.use_begin(), value.use_end());
  }
}

void Fingerprint::addOperand(OpOperand &operand) {
  auto known = inside.find(operand.get());
  if (known != inside.end()) {
    ++usesSeen;
    return addNumber(known->second);
  }
  addNumber(isOutside);
  add(operand.get().getType().getAsOpaquePointer());
  outside.push_back(&operand);
}

void Fingerprint::addOperation(Operation &op) {
  ++numOps;
  isClosed &= op.getNumSuccessors() == 0;
  add(op.getName().getAsOpaquePointer());
  if (auto index = dyn_cast<arith::ConstantIndexOp>(op))
    indices.push_back(index);
  else
    add(op.getAttrDictionary().getAsOpaquePointer());
  addNumber(op.getNumOperands());
  for (OpOperand &operand : op.getOpOperands())
    addOperand(operand);
  addDefinitions(op.getResults());
  addNumber(op.getNumRegions());
  for (Region &region : op.getRegions()) {
    for (Block &block : region) {
      addDefinitions(block.getArguments());
      for (Operation &nested : block)
        addOperation(nested);
      addNumber(endOfBlock);
    }
  }
}
