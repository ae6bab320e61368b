//===- CommitState.cpp - direct and staged commits ------------------------===//

#include "lib/Transforms/CommitState/CommitState.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Scheduling/TileSizes.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKCOMMITSTATE
#include "lib/Transforms/CommitState/CommitState.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
struct CommitStatePass : public megakernel::impl::TkCommitStateBase<CommitStatePass> {
  void runOnOperation() override {
    kernel = getOperation();
    phases = llvm::to_vector(kernel.getBody().front().getOps<PhaseOp>());
    for (auto commit : llvm::make_early_inc_range(kernel.getBody().front().getOps<CommitOp>())) {
      if (isDirect(commit)) {
        commitDirectly(commit);
        ++numDirect;
      } else {
        stage(commit);
        ++numStaged;
      }
    }
  }

private:
  static bool uses(OperandRange buffers, Value root) {
    return llvm::any_of(buffers, [&](Value buffer) { return rootOfBuffer(buffer) == root; });
  }

  // The tiles that match, with the phase of each.
  SmallVector<std::pair<unsigned, TileOp>> findTiles(function_ref<bool(TileOp)> matches) {
    SmallVector<std::pair<unsigned, TileOp>> found;
    for (auto [number, phase] : llvm::enumerate(phases))
      for (auto tile : phase.getBody().front().getOps<TileOp>())
        if (matches(tile))
          found.emplace_back(number, tile);
    return found;
  }

  Value oldStateOf(CommitOp commit) {
    unsigned output = cast<BlockArgument>(commit.getTarget()).getArgNumber();
    std::optional<unsigned> updated = kernel.getUpdatedArg(output);
    return updated ? kernel.getArgument(*updated) : Value();
  }

  bool isDirect(CommitOp commit) {
    Value source = rootOfBuffer(commit.getSource());
    if (!source.getDefiningOp<BufferOp>())
      return false;
    // One buffer can become one output only.
    for (auto other : kernel.getBody().front().getOps<CommitOp>())
      if (other != commit && rootOfBuffer(other.getSource()) == source)
        return false;
    Value old = oldStateOf(commit);
    auto writers = findTiles([&](TileOp tile) { return uses(tile.getOutputs(), source); });
    if (writers.size() != 1)
      return false;
    auto [phase, writer] = writers.front();
    for (auto [readPhase, reader] : findTiles([&](TileOp tile) { return uses(tile.getInputs(), old); }))
      if (reader != writer && readPhase >= phase)
        return false;
    for (auto [index, input] : llvm::enumerate(writer.getInputs()))
      if (rootOfBuffer(input) == old && !readsOwnElementOnly(writer, index))
        return false;
    return true;
  }

  void commitDirectly(CommitOp commit) {
    Value source = rootOfBuffer(commit.getSource());
    OpBuilder builder(source.getDefiningOp());
    Value target = commit.getTarget();
    // The commit's source may be a reshape of the buffer; then the buffer is that reshape of the output, undone.
    if (source.getType() != target.getType()) {
      auto type = cast<MemRefType>(source.getType());
      target = reshape(builder, commit.getLoc(), target, type);
    }
    commit.erase();
    source.replaceAllUsesWith(target);
    source.getDefiningOp()->erase();
  }

  static Value reshape(OpBuilder &builder, Location loc, Value buffer, MemRefType type) {
    auto all = [](int64_t rank) {
      SmallVector<ReassociationIndices> groups;
      if (rank > 0)
        groups.push_back(llvm::to_vector(llvm::seq<int64_t>(0, rank)));
      return groups;
    };
    int64_t rank = cast<MemRefType>(buffer.getType()).getRank();
    if (rank > 1 || type.getRank() == 0)
      buffer = memref::CollapseShapeOp::create(builder, loc, buffer,
                                               type.getRank() == 0 ? SmallVector<ReassociationIndices>() : all(rank));
    if (buffer.getType() == type)
      return buffer;
    bool fromScalar = cast<MemRefType>(buffer.getType()).getRank() == 0;
    return memref::ExpandShapeOp::create(builder, loc, type, buffer,
                                         fromScalar ? SmallVector<ReassociationIndices>() : all(type.getRank()));
  }

  // Copies after the last phase that reads the old state or writes the value.
  void stage(CommitOp commit) {
    Value source = rootOfBuffer(commit.getSource()), old = oldStateOf(commit);
    unsigned first = 0;
    for (auto [number, tile] :
         findTiles([&](TileOp tile) { return uses(tile.getInputs(), old) || uses(tile.getOutputs(), source); }))
      first = std::max(first, number + 1);
    if (first == phases.size()) {
      OpBuilder builder(kernel.getBody().front().getTerminator());
      auto phase = PhaseOp::create(builder, commit.getLoc());
      phase.getBody().emplaceBlock();
      phases.push_back(phase);
    }
    hoistViews(commit.getSource(), phases[first]);
    createCopy(commit, phases[first]);
    commit.erase();
  }

  // Reshapes of a buffer that stand beside the commit have to stand before the copy. Buffers stand at the top.
  static void hoistViews(Value buffer, Operation *before) {
    Operation *view = buffer.getDefiningOp();
    if (!view || isa<BufferOp>(view) || view->isBeforeInBlock(before))
      return;
    hoistViews(view->getOperand(0), before);
    view->moveBefore(before);
  }

  void createCopy(CommitOp commit, PhaseOp phase) {
    Location loc = commit.getLoc();
    auto type = cast<MemRefType>(commit.getSource().getType());
    OpBuilder builder = OpBuilder::atBlockEnd(&phase.getBody().front());
    trainkernel::Sizes sizes = trainkernel::chooseElementTile(type.getShape(), kernel.getThreads() * 4);
    auto tile = TileOp::create(builder, loc, commit.getSource(), commit.getTarget(), sizes);
    Block &body = tile.getBody().emplaceBlock();
    Value argument = body.addArgument(RankedTensorType::get(type.getShape(), type.getElementType()), loc);
    builder.setInsertionPointToEnd(&body);
    YieldOp::create(builder, loc, argument);
  }

  KernelOp kernel;
  SmallVector<PhaseOp> phases;
};
} // namespace
