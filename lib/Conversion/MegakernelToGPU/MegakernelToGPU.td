include "mlir/Pass/PassBase.td"

def ConvertMegakernelToGPU : Pass<"convert-megakernel-to-gpu", "::mlir::ModuleOp"> {
  let summary = "generate one GPU kernel from the scheduled form";
  let description = [{
    Needs a kernel that `tk-check-schedule` accepts. Leaves a `gpu.module` with one kernel function whose parameters
    are the kernel's arguments and the workspace: 256 bytes of barrier state, then the arena. Tiles become loops over
    the tiles of a CTA; contractions of bfloat16 or float16 use mma.sync with ldmatrix, or wgmma where the target has it
    and the tile suits it, contractions of float32 true float32 multiply-adds, or mma.sync on two tf32 parts where the
    kernel's `fp32` is `tf32x3`; everything else is one element, or a vector of elements, per thread.

    The module's data layout says how wide an index is: 32 bits, or 64 where an argument has 2^31 elements or the
    workspace 2^31 bytes.

    The function of a kernel that repeats has two more parameters, 32-bit numbers: the steps of the launch, and the
    entries of each batch argument. A kernel of few phases has a second function, which runs one step and knows nothing of
    others: it has the kernel's name, and the one that repeats has `_many` behind it. With many phases the loop costs a
    launch of one step nothing that counts, and a second function would take as long to compile as the first. With few
    tile ops, too, indices are computed once, ahead of the loop; with more there would be no registers left for them.

    Between a CTA's arrival at a barrier and its wait, what is `prefetched` is on its way: operands of products into
    shared memory, what epilogues read into registers. A product of inputs that are all prefetched is computed there,
    and only its results are written after the wait. An epilogue of many instructions is a loop over the results of a
    thread: code that runs once takes longer to fetch than to run.

    On targets where launches of a stream can overlap, the kernel first waits for those before it to end.

    With `profile`, the first thread of each CTA writes the time (`globaltimer`, ns) at which the CTA starts and at
    which each phase and each barrier ends, to the end of the workspace: one row of 64-bit numbers per event, one
    column per CTA. Of a launch of several steps these are the times of the last one.

    In a kernel of more ops than `small-kernel`, code of phases or tile ops that recurs three times or more, with other
    buffers and other first tiles, becomes one function that is called with them.

    Fails on a body that has no vector form, naming the op.
  }];
  let options = [
    Option<"profile", "profile", "bool", "false", "record when phases and barriers end">,
    Option<"separatePhases", "separate-phases", "int64_t", "12",
           "Phases up to which launches of one step have a function of their own">,
    Option<"hoistOps", "hoist-ops", "int64_t", "4",
           "Tile ops up to which such a kernel computes indices ahead of the loop over steps">,
    Option<"smallKernel", "small-kernel", "int64_t", "::mlir::megakernel::smallGPUKernel",
           "ops up to which a kernel keeps all its code in one function">
  ];
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::DLTIDialect", "::mlir::func::FuncDialect",
                           "::mlir::NVVM::NVVMDialect", "::mlir::LLVM::LLVMDialect"];
}
