// RUN: tk-opt %s --tk-lower-to-cuda | FileCheck %s

// A step may have the name of such a function.
#id = affine_map<(d0) -> (d0)>

// CHECK: llvm.func internal @exact_sqrt_4_(
// CHECK: llvm.func @exact_sqrt_4(
// CHECK: llvm.call @exact_sqrt_4_(
megakernel.kernel @exact_sqrt_4(%x: memref<1024xf32> {megakernel.role = #megakernel.role<batch>},
                                %y: memref<1024xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 0 : i64,
                shared_bytes = 0 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<1024xf32>) outs(%y : memref<1024xf32>) sizes [1024] {
      %e = tensor.empty() : tensor<1024xf32>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%a : tensor<1024xf32>) outs(%e : tensor<1024xf32>) {
      ^bb0(%in: f32, %out: f32):
        %s = math.sqrt %in : f32
        linalg.yield %s : f32
      } -> tensor<1024xf32>
      megakernel.yield %r : tensor<1024xf32>
    }
  }
  megakernel.return
}
