// RUN: tk-opt %s --tk-check-schedule --tk-fetch-ahead --tk-check-schedule | FileCheck %s

// A copy serves no phase behind a write to what was copied.
// CHECK-LABEL: @written_anew
// CHECK-SAME: (%[[X:.*]]: memref<4x16xf32> {{.*}}, %[[Y:.*]]: memref<4x16xf32> {{.*}}, %[[Z:.*]]: memref<4x16xf32>
// CHECK: %[[COPY:.*]] = megakernel.buffer {part = 16 : i64, shared_at = 0 : i64}
// CHECK: %[[B:.*]] = megakernel.buffer {offset = 0 : i64}
// CHECK: barrier <grid>
// CHECK: tile ins(%{{.*}} = %[[B]] : memref<4x16xf32>) outs(%[[COPY]] :
// CHECK: barrier <cta>
// CHECK: tile ins(%{{.*}} = %[[COPY]] : {{.*}}) outs(%[[B]], %[[Y]] :
// CHECK: barrier <cta>
// CHECK: tile ins(%{{.*}} = %[[B]] : memref<4x16xf32>) outs(%[[Z]] :
#id = affine_map<(m, n) -> (m, n)>
megakernel.kernel @written_anew(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                                %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>},
                                %z: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_80", arena_bytes = 512 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4x16xf32>
  %c = megakernel.buffer {offset = 256 : i64} : memref<4x16xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%b : memref<4x16xf32>) sizes [4, 4] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%c : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4x16xf32>, %d = %c : memref<4x16xf32>) outs(%b, %y : memref<4x16xf32>, memref<4x16xf32>) sizes [1, 16] {
      %e = tensor.empty() : tensor<4x16xf32>
      %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %d : tensor<4x16xf32>, tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
      ^bb0(%p: f32, %q: f32, %o: f32):
        %r = arith.addf %p, %q : f32
        linalg.yield %r : f32
      } -> tensor<4x16xf32>
      megakernel.yield %s, %s : tensor<4x16xf32>, tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4x16xf32>) outs(%z : memref<4x16xf32>) sizes [1, 16] {
      %e = tensor.empty() : tensor<4x16xf32>
      %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
      ^bb0(%p: f32, %o: f32):
        %r = arith.negf %p : f32
        linalg.yield %r : f32
      } -> tensor<4x16xf32>
      megakernel.yield %s : tensor<4x16xf32>
    }
  }
  megakernel.return
}
