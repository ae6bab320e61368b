// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#row = affine_map<(d0, d1) -> (d0)>
#all = affine_map<(d0, d1) -> (d0, d1)>

// Whether any element of a row is true: the parts of a row meet in shared memory, where a bool is a byte.
// CHECK: gpu.func @any
// CHECK: %[[BYTE:.*]] = arith.extui %{{.*}} : i1 to i8
// CHECK: memref.store %[[BYTE]], %{{.*}} : memref<{{.*}}xi8, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK: %[[PART:.*]] = memref.load %{{.*}} : memref<{{.*}}xi8, #gpu.address_space<workgroup>>
// CHECK: arith.trunci %[[PART]] : i8 to i1
// CHECK: gpu.return
megakernel.kernel @any(%x: memref<2x512xi1> {megakernel.role = #megakernel.role<batch>},
                       %y: memref<2xi1> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 256 : i64, target = "sm_90a", shared_bytes = 4096 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<2x512xi1>) outs(%y : memref<2xi1>) sizes [2, 512] {
      %false = arith.constant dense<false> : tensor<2xi1>
      %r = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
          ins(%a : tensor<2x512xi1>) outs(%false : tensor<2xi1>) {
      ^bb0(%in: i1, %out: i1):
        %s = arith.ori %in, %out : i1
        linalg.yield %s : i1
      } -> tensor<2xi1>
      megakernel.yield %r : tensor<2xi1>
    }
  }
  megakernel.return
}
