// What the import leaves alone.
// RUN: tk-opt %s --tk-import-linalg --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s

// The module's attributes, ops beside the function, roles that are attributes already, and locations.
// CHECK: module attributes {megakernel.manifest = "{}"}
// CHECK: megakernel.kernel @other()
// CHECK: megakernel.step @keep(%arg0: tensor<4xf32> {megakernel.role = #megakernel.role<state>} loc("step.py":1:10))
// CHECK: megakernel.return %arg0 : tensor<4xf32> loc("step.py":2:3)
module attributes {megakernel.manifest = "{}"} {
  megakernel.kernel @other() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
    megakernel.return
  }
  func.func @keep(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>} loc("step.py":1:10))
      -> (tensor<4xf32> {megakernel.role = "new_state", megakernel.updates = 0 : i64}) {
    return %w : tensor<4xf32> loc("step.py":2:3)
  }
}
