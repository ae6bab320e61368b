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
    for (auto commit : kernel.getBody().front().getOps<CommitOp>())
      if (mayLoseSource(commit))
        keepSource(commit);
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
  // True where the source is the old value of a state that another commit replaces.
  bool mayLoseSource(CommitOp commit) {
    auto source = dyn_cast<BlockArgument>(rootOfBuffer(commit.getSource()));
    if (!source || source == oldStateOf(commit))
      return false;
    return llvm::any_of(llvm::seq<unsigned>(0, kernel.getNumArguments()),
                        [&](unsigned index) { return kernel.getUpdatedArg(index) == source.getArgNumber(); });
  }

  // Copies the source to a buffer in the first phase, which orders it before what replaces the state.
  void keepSource(CommitOp commit) {
    OpBuilder builder = OpBuilder::atBlockBegin(&kernel.getBody().front());
    auto buffer = BufferOp::create(builder, commit.getLoc(), commit.getSource().getType());
    if (phases.empty())
      phases.push_back(createPhase(commit, commit.getLoc()));
    hoistViews(commit.getSource(), phases.front());
    createCopy(commit.getLoc(), commit.getSource(), buffer, phases.front());
    commit.getSourceMutable().assign(buffer);
  }

  static PhaseOp createPhase(Operation *before, Location loc) {
    OpBuilder builder(before);
    auto phase = PhaseOp::create(builder, loc);
    phase.getBody().emplaceBlock();
    return phase;
  }

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
    if (first == phases.size())
      phases.push_back(createPhase(kernel.getBody().front().getTerminator(), commit.getLoc()));
    hoistViews(commit.getSource(), phases[first]);
    createCopy(commit.getLoc(), commit.getSource(), commit.getTarget(), phases[first]);
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

  void createCopy(Location loc, Value source, Value target, PhaseOp phase) {
    auto type = cast<MemRefType>(source.getType());
    OpBuilder builder = OpBuilder::atBlockEnd(&phase.getBody().front());
    trainkernel::Sizes sizes = trainkernel::chooseElementTile(type.getShape(), kernel.getThreads() * 4);
    auto tile = TileOp::create(builder, loc, source, target, sizes);
    Block &body = tile.getBody().emplaceBlock();
    Value argument = body.addArgument(RankedTensorType::get(type.getShape(), type.getElementType()), loc);
    builder.setInsertionPointToEnd(&body);
    YieldOp::create(builder, loc, argument);
  }

  KernelOp kernel;
  SmallVector<PhaseOp> phases;
};
} // namespace
