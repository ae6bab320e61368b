include "mlir/Pass/PassBase.td"

def TkEmitCPUEntry : Pass<"tk-emit-cpu-entry", "::mlir::ModuleOp"> {
  let summary = "give a lowered CPU step its C entry point";
  let description = [{
    Needs a module in the LLVM dialect that holds one function with the attribute `megakernel.entry`, the name of the
    entry point to make. Leaves that entry point beside it:
    `void NAME(void **params, int64_t worker, int64_t num_workers, void *context, void (*barrier)(void *))`, which
    loads the buffer pointers, and 64-bit numbers, from `params` and calls the function.

    Without such a function nothing is added. Fails where its parameters are not pointers to buffers and numbers, followed
    by worker, number of workers, context and barrier.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}
