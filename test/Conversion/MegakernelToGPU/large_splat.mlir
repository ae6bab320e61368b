// One value for all elements is taken as one, however many there are: 2^34 would not fit into memory.
// RUN: tk-opt %s --convert-megakernel-to-gpu | FileCheck %s


// CHECK: arith.constant 1.500000e+00 : f32
// CHECK: gpu.return
megakernel.kernel @splat(%x: memref<64xf32> {megakernel.role = #megakernel.role<batch>},
                         %y: memref<64xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_80", shared_bytes = 4096 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<64xf32>) outs(%y : memref<64xf32>) sizes [64] {
      %all = arith.constant dense<1.5> : tensor<64x268435456xf32>
      %one = tensor.extract_slice %all[0, 0] [64, 1] [1, 1] : tensor<64x268435456xf32> to tensor<64xf32>
      %init = tensor.empty() : tensor<64xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                           iterator_types = ["parallel"]}
          ins(%a, %one : tensor<64xf32>, tensor<64xf32>) outs(%init : tensor<64xf32>) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %s = arith.addf %in, %in2 : f32
        linalg.yield %s : f32
      } -> tensor<64xf32>
      megakernel.yield %r : tensor<64xf32>
    }
  }
  megakernel.return
}
