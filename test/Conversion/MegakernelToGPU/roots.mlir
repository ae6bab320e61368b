// A square root is rounded correctly, in lanes too; the device library's would not be.
// RUN: tk-opt %s --tk-lower-to-cuda | FileCheck %s

#id = affine_map<(d0) -> (d0)>

// CHECK-NOT: __nv_sqrt
// CHECK: llvm.call_intrinsic "llvm.sqrt"(%{{.*}}) : (vector<4xf32>) -> vector<4xf32>
// CHECK-NOT: __nv_sqrt
megakernel.kernel @step(%x: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 0 : i64,
                shared_bytes = 0 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8xf32>) outs(%y : memref<8xf32>) sizes [8] {
      %e = tensor.empty() : tensor<8xf32>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%in: f32, %out: f32):
        %s = math.sqrt %in : f32
        linalg.yield %s : f32
      } -> tensor<8xf32>
      megakernel.yield %r : tensor<8xf32>
    }
  }
  megakernel.return
}
