// New states that wait in a buffer.
// RUN: tk-opt %s --tk-commit-state | FileCheck %s

// The update runs beside another reader of the old state, so it is copied one phase later.
// CHECK-LABEL: megakernel.kernel @beside_a_reader
// CHECK-SAME: (%[[W:.*]]: memref<4xf32> {{{.*}}}, %[[N:.*]]: memref<4xf32> {{{.*}}}, %[[Y:.*]]: memref<4xf32>
// CHECK-NEXT: %[[B:.*]] = megakernel.buffer
// CHECK: outs(%[[B]] : memref<4xf32>)
// CHECK: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%[[A:.*]] = %[[B]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>) sizes [4] {
// CHECK-NEXT: megakernel.yield %[[A]]
// CHECK-NOT: megakernel.commit
megakernel.kernel @beside_a_reader(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%b : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.commit %b to %n : memref<4xf32>
  megakernel.return
}

#t = affine_map<(d0, d1) -> (d1, d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
// The update reads other elements than it writes. A phase that is there anyway takes the copy.
// CHECK-LABEL: megakernel.kernel @other_elements
// CHECK-SAME: (%[[W:.*]]: memref<4x4xf32> {{{.*}}}, %[[N:.*]]: memref<4x4xf32> {{{.*}}}, %[[Y:.*]]: memref<4x4xf32>
// CHECK: megakernel.phase {
// CHECK: megakernel.phase {
// CHECK: outs(%[[Y]] : memref<4x4xf32>)
// CHECK: megakernel.tile ins(%{{.*}} = %{{.*}} : memref<4x4xf32>) outs(%[[N]] : memref<4x4xf32>)
// CHECK-NOT: megakernel.phase
megakernel.kernel @other_elements(%w: memref<4x4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4x4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %y: memref<4x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x4xf32>) outs(%b : memref<4x4xf32>) sizes [4, 4] {
      %e = tensor.empty() : tensor<4x4xf32>
      %r = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<4x4xf32>
      megakernel.yield %r : tensor<4x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4x4xf32>) outs(%y : memref<4x4xf32>) sizes [4, 4] {
      megakernel.yield %a : tensor<4x4xf32>
    }
  }
  megakernel.commit %b to %n : memref<4x4xf32>
  megakernel.return
}
