include "mlir/Pass/PassBase.td"

def ConvertMegakernelToCPU : Pass<"convert-megakernel-to-cpu", "::mlir::ModuleOp"> {
  let summary = "generate the worker function of a CPU step from the scheduled form";
  let description = [{
    Needs a kernel that `tk-check-schedule` accepts. Leaves a function that every worker of a thread pool runs: a CTA
    is a worker, phases are loops over the worker's tiles, every barrier joins all workers. Inner loops are vectors of
    `vector-bits`; contractions pack their operands as float32 into the worker's own scratch and multiply there.
    What is bfloat16 becomes 16-bit integers, converted by integer arithmetic. `math.expm1` and `math.log1p` become calls
    of the C library's, which are accurate near zero.

    A kernel that repeats becomes a loop over the steps of a launch; their number, and that of the entries of each batch
    argument, are parameters behind the workspace.

    In a kernel of more ops than `small-kernel`, code of phases or tile ops that recurs three times or more, with other
    buffers and other first tiles, becomes one function that is called with them.

    Fails on a body that has no vector form, naming the op.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", "512", "Width of a vector register in bits: 256 or 512">,
    Option<"smallKernel", "small-kernel", "int64_t", "::mlir::megakernel::smallCPUKernel",
           "ops up to which a kernel keeps all its code in one function">
  ];
  let dependentDialects = ["::mlir::func::FuncDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::LLVM::LLVMDialect"];
}
