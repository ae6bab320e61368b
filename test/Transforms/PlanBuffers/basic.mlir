// RUN: tk-opt %s --tk-plan-buffers | FileCheck %s

// %c may have the place of %b, which nobody reads after the second barrier; %d, which is read to the end, may not.
// What nothing uses is removed. Places are multiples of 256 bytes.
// CHECK-LABEL: megakernel.kernel @reuse
// CHECK-SAME: arena_bytes = 768 : i64
// CHECK-NEXT: %[[D:.*]] = megakernel.buffer {offset = 512 : i64} : memref<4xf32>
// CHECK-NEXT: %[[B:.*]] = megakernel.buffer {offset = 0 : i64} : memref<128xf32>
// CHECK-NEXT: %[[C:.*]] = megakernel.buffer {offset = 0 : i64} : memref<128xf32>
// CHECK-NEXT: megakernel.phase
megakernel.kernel @reuse(%x: memref<128xf32> {megakernel.role = #megakernel.role<batch>},
                         %s: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                         %y: memref<128xf32> {megakernel.role = #megakernel.role<output>},
                         %z: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %unused = megakernel.buffer : memref<64xf32>
  %d = megakernel.buffer : memref<4xf32>
  %b = megakernel.buffer : memref<128xf32>
  %c = megakernel.buffer : memref<128xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<128xf32>) outs(%b : memref<128xf32>) sizes [128] {
      megakernel.yield %a : tensor<128xf32>
    }
    megakernel.tile ins(%a = %s : memref<4xf32>) outs(%d : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<128xf32>) outs(%y : memref<128xf32>) sizes [128] {
      megakernel.yield %a : tensor<128xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<128xf32>) outs(%c : memref<128xf32>) sizes [128] {
      megakernel.yield %a : tensor<128xf32>
    }
    megakernel.tile ins(%a = %d : memref<4xf32>) outs(%z : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// Without a barrier between them, two buffers never share a place. A kernel without buffers has an empty arena.
// CHECK-LABEL: megakernel.kernel @no_barrier
// CHECK-SAME: arena_bytes = 512 : i64
// CHECK-NEXT: megakernel.buffer {offset = 0 : i64}
// CHECK-NEXT: megakernel.buffer {offset = 256 : i64}
megakernel.kernel @no_barrier(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
  %c = megakernel.buffer : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%c : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// CHECK-LABEL: megakernel.kernel @nothing
// CHECK-SAME: arena_bytes = 0 : i64
megakernel.kernel @nothing() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}
