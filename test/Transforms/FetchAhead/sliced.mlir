// RUN: tk-opt %s --tk-check-schedule --tk-fetch-ahead --tk-check-schedule --split-input-file | FileCheck %s

// An argument that may end before its last element is not copied whole; one whose last element is read is.
// CHECK-LABEL: @sliced
// CHECK-SAME: (%[[X:.*]]: memref<4x48xf32> {{.*}}, %[[Y:.*]]: memref<4x48xf32> {{.*}}, %[[Z:.*]]: memref<4x16xf32>
// CHECK-COUNT-1: megakernel.buffer {part
// CHECK-NOT: megakernel.buffer {part
// CHECK: tile ins(%{{.*}} = %[[Y]] : memref<4x48xf32>) outs(%[[COPY:.*]] :
// CHECK: tile ins(%{{.*}} = %{{.*}} : {{.*}}, %{{.*}} = %[[X]] : {{.*}}, %{{.*}} = %[[COPY]] : {{.*}}) outs(%[[Z]] :
#id = affine_map<(m, n) -> (m, n)>
megakernel.kernel @sliced(%x: memref<4x48xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<4x48xf32> {megakernel.role = #megakernel.role<batch>},
                          %z: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_80", arena_bytes = 256 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4x16xf32>
  megakernel.phase {
    megakernel.tile ins() outs(%b : memref<4x16xf32>) sizes [1, 16] {
      %one = arith.constant dense<1.0> : tensor<4x16xf32>
      megakernel.yield %one : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4x16xf32>, %c = %x : memref<4x48xf32>, %d = %y : memref<4x48xf32>) outs(%z : memref<4x16xf32>) sizes [1, 16] {
      %e = tensor.empty() : tensor<4x16xf32>
      %first = tensor.extract_slice %c[0, 0] [4, 16] [1, 1] : tensor<4x48xf32> to tensor<4x16xf32>
      %last = tensor.extract_slice %d[0, 2] [4, 16] [1, 3] : tensor<4x48xf32> to tensor<4x16xf32>
      %s = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %first, %last : tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
      ^bb0(%p: f32, %q: f32, %r: f32, %o: f32):
        %u = arith.addf %p, %q : f32
        %v = arith.addf %u, %r : f32
        linalg.yield %v : f32
      } -> tensor<4x16xf32>
      megakernel.yield %s : tensor<4x16xf32>
    }
  }
  megakernel.return
}

// -----

// A buffer has all of its memory, whatever is read of it.
// CHECK-LABEL: @buffer
// CHECK: %[[COPY:.*]] = megakernel.buffer {part = 48 : i64, shared_at = {{[0-9]+}} : i64} : memref<4x48xf32>
// CHECK: tile ins(%{{.*}} = %[[W:.*]] : memref<4x48xf32>) outs(%[[COPY]] :
// CHECK: tile ins(%{{.*}} = %[[COPY]] : memref<4x48xf32>) outs(%{{.*}} : memref<4x16xf32>)
megakernel.kernel @buffer(%y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>},
                          %z: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_80", arena_bytes = 768 : i64} {
  %w = megakernel.buffer {offset = 0 : i64} : memref<4x48xf32>
  megakernel.phase {
    megakernel.tile ins() outs(%w : memref<4x48xf32>) sizes [1, 48] {
      %one = arith.constant dense<1.0> : tensor<4x48xf32>
      megakernel.yield %one : tensor<4x48xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins() outs(%y : memref<4x16xf32>) sizes [1, 16] {
      %two = arith.constant dense<2.0> : tensor<4x16xf32>
      megakernel.yield %two : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x48xf32>) outs(%z : memref<4x16xf32>) sizes [1, 16] {
      %first = tensor.extract_slice %a[0, 0] [4, 16] [1, 1] : tensor<4x48xf32> to tensor<4x16xf32>
      megakernel.yield %first : tensor<4x16xf32>
    }
  }
  megakernel.return
}
