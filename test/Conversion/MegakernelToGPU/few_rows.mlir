// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// A tile of two rows: the product is computed transposed, so that the matrix unit multiplies eight and not sixteen. The
// others repeat the last row that is the tile's own, since another CTA may be at work on theirs, and are not written.
// A lane has rows 0 and 1, 2 and 3, 4 and 5 or 6 and 7.
// CHECK: gpu.func @product
// CHECK-DAG: %[[LAST:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[ROWS:.*]] = arith.constant 2 : index
// CHECK-COUNT-4: arith.cmpi ult, %{{.*}}, %[[ROWS]]
// CHECK: arith.minui %{{.*}}, %[[LAST]]
// CHECK: %[[W:.*]] = nvvm.ldmatrix {{.*}} num = 4
// CHECK: %[[W0:.*]] = llvm.extractvalue %[[W]][0]
// CHECK: %[[X:.*]] = nvvm.ldmatrix {{.*}} num = 2
// CHECK: %[[X0:.*]] = llvm.extractvalue %[[X]][0]
// CHECK: nvvm.mma.sync A[%[[W0]], {{.*}}] B[%[[X0]], {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 16>
// CHECK-COUNT-4: scf.if
// CHECK-NOT: scf.if
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<16x16xbf16> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<16x16xbf16> {megakernel.role = #megakernel.role<state>},
                           %y: memref<16x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 8 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", shared_bytes = 4096 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<16x16xbf16>, %b = %w : memref<16x16xbf16>) outs(%y : memref<16x16xf32>)
        sizes [2, 16, 16] {
      %zero = arith.constant dense<0.0> : tensor<16x16xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<16x16xbf16>, tensor<16x16xbf16>) outs(%zero : tensor<16x16xf32>) {
      ^bb0(%in: bf16, %in2: bf16, %out: f32):
        %l = arith.extf %in : bf16 to f32
        %q = arith.extf %in2 : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<16x16xf32>
      megakernel.yield %r : tensor<16x16xf32>
    }
  }
  megakernel.return
}
