include "mlir/Pass/PassBase.td"

def TkBindOperands : Pass<"tk-bind-operands", "::mlir::megakernel::KernelOp"> {
  let summary = "read operands of products where they are";
  let description = [{
    Needs a kernel with barriers and places on chip. Rows that a CTA has in shared memory as they are multiplied are not
    staged once more (`rows_at`). A kept operand that at least three products of a chain multiply with stays in
    registers (`in_registers`), as far as these hold it: a chain are phases on the same CTAs with nothing but barriers
    of a CTA between them.

    A kernel for the CPU is left alone. Never fails.
  }];
  let statistics = [
    Statistic<"numInPlace", "in-place", "Products whose rows are not staged">,
    Statistic<"numHeld", "held", "Products with an operand in registers">
  ];
}
