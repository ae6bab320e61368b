// Square roots and quotients are rounded correctly, in lanes too; the device library's would not be. What the GPU
// approximates is improved, and a function is there for operands that this is not exact for.
// RUN: tk-opt %s --tk-lower-to-cuda --split-input-file | FileCheck %s

#id = affine_map<(d0) -> (d0)>

// CHECK-NOT: __nv_sqrt
// CHECK: llvm.func internal @exact_sqrt_4(%[[a:.*]]: vector<4xf32>)
// CHECK: llvm.call_intrinsic "llvm.sqrt"(%[[a]]) : (vector<4xf32>) -> vector<4xf32>
// CHECK: llvm.func @root(
// CHECK: llvm.call_intrinsic "llvm.nvvm.rsqrt.approx.ftz.f"
// CHECK-COUNT-8: llvm.call @__nv_fmaf
// CHECK: llvm.cond_br
// CHECK: llvm.call @exact_sqrt_4
// CHECK-NOT: __nv_sqrt
megakernel.kernel @root(%x: memref<1024xf32> {megakernel.role = #megakernel.role<batch>},
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

// -----

// All lanes divide by one number, whose inverse is computed once.
#id = affine_map<(d0) -> (d0)>
#one = affine_map<(d0) -> ()>

// CHECK: llvm.func internal @exact_divf_4(
// CHECK: llvm.fdiv %{{.*}}, %{{.*}} : vector<4xf32>
// CHECK: llvm.func @quotient(
// CHECK-COUNT-1: llvm.call_intrinsic "llvm.nvvm.rcp.approx.ftz.f"
// CHECK-NOT: rcp.approx
// CHECK: llvm.call @exact_divf_4
megakernel.kernel @quotient(%x: memref<1024xf32> {megakernel.role = #megakernel.role<batch>},
                            %n: memref<f32> {megakernel.role = #megakernel.role<batch>},
                            %y: memref<1024xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 0 : i64,
                shared_bytes = 0 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<1024xf32>, %b = %n : memref<f32>) outs(%y : memref<1024xf32>) sizes [1024] {
      %e = tensor.empty() : tensor<1024xf32>
      %r = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel"]}
          ins(%a, %b : tensor<1024xf32>, tensor<f32>) outs(%e : tensor<1024xf32>) {
      ^bb0(%i: f32, %j: f32, %out: f32):
        %q = arith.divf %i, %j : f32
        linalg.yield %q : f32
      } -> tensor<1024xf32>
      megakernel.yield %r : tensor<1024xf32>
    }
  }
  megakernel.return
}
