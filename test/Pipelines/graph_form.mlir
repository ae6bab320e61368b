// The stages import and fuse.
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import)' | FileCheck %s --check-prefix=IMPORT
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse)' | FileCheck %s --check-prefix=FUSE

// After the import there is one kind of op, and the rate is rounded at compile time.
// IMPORT: module attributes {megakernel.manifest = "{\22name\22:\22step\22}"}
// IMPORT: megakernel.step @step(%{{.*}}: tensor<8x8xf32> {megakernel.path = "state.w", megakernel.role = #megakernel.role<state>}
// IMPORT-DAG: arith.constant 5.000000e-01 : f32
// IMPORT-NOT: linalg.{{(matmul|transpose|fill)}}
// IMPORT-NOT: arith.truncf
// IMPORT: linalg.generic
// IMPORT: megakernel.return

// After fusion the product and the sum are one fused op each, and the update is the gradient's epilogue.
// FUSE: megakernel.step @step(%[[W:.*]]: tensor<8x8xf32> {{.*}}, %[[X:.*]]: tensor<16x8xf32>
// FUSE: megakernel.fused({{.*}}) -> tensor<16x8xf32> {
// FUSE: iterator_types = ["parallel", "parallel", "reduction"]
// FUSE: megakernel.fused({{.*}} : tensor<16x8xf32>) -> tensor<f32> {
// FUSE: iterator_types = ["reduction", "reduction"]
// FUSE: megakernel.fused({{.*}}) -> tensor<8x8xf32> {
// FUSE: iterator_types = ["parallel", "parallel", "reduction"]
// FUSE: arith.subf
// FUSE: megakernel.return
