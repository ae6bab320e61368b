// RUN: tk-opt %s --tk-prefetch-inputs --split-input-file | FileCheck %s

// Nothing writes %x ahead of the barrier; %b is what the barrier is for, since another CTA wrote it.
// CHECK-LABEL: megakernel.kernel @weights
// CHECK-NOT: prefetched
// CHECK: megakernel.barrier
// CHECK: megakernel.tile ins(%{{.*}} = %{{.*}}, %{{.*}} = %arg0
// CHECK-SAME: attributes {prefetched = array<i64: 1>}
megakernel.kernel @weights(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>, %c = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [2]
        first_cta 1 {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

// %c has the memory of what is written just before; without a barrier there is nothing to read ahead of.
// CHECK-LABEL: megakernel.kernel @not_here
// CHECK-NOT: prefetched
megakernel.kernel @not_here(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
    %z: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  %c = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %c : memref<4xf32>) outs(%y : memref<4xf32>) sizes [2] first_cta 1 {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%z : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
