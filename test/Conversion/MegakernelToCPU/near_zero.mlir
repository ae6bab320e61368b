// Functions that are accurate near zero.
// RUN: tk-opt %s --convert-megakernel-to-cpu --canonicalize | FileCheck %s

#id = affine_map<(d0) -> (d0)>

// What must be accurate near zero is the C library's, lane by lane.
// CHECK-LABEL: func.func @near_zero_worker
// CHECK-NOT: math.expm1
// CHECK: call @expm1f(%{{.*}}) : (f32) -> f32
// CHECK: call @log1pf(%{{.*}}) : (f32) -> f32
// CHECK-NOT: math.log1p
megakernel.kernel @near_zero(%x: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
                             %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8xf32>) outs(%y : memref<8xf32>) sizes [8] {
      %e = tensor.empty() : tensor<8xf32>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%in: f32, %out: f32):
        %s = math.expm1 %in : f32
        %t = math.log1p %s : f32
        linalg.yield %t : f32
      } -> tensor<8xf32>
      megakernel.yield %r : tensor<8xf32>
    }
  }
  megakernel.return
}
