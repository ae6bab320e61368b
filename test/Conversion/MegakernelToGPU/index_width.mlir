// RUN: tk-opt %s --split-input-file --convert-megakernel-to-gpu | FileCheck %s
// RUN: tk-opt %s --split-input-file --tk-lower-to-cuda | FileCheck %s --check-prefix=LOWERED

// An offset of 2147483648 - 256 bytes in the arena, behind 256 bytes of barrier state: one more than 31 bits hold.
// CHECK: gpu.module @step_module {{.*}}dlti.dl_spec = #dlti.dl_spec<index = 64 : i32>
// LOWERED: %[[OFFSET:.*]] = llvm.mlir.constant(2147483648 : index) : i64
// LOWERED: llvm.getelementptr %{{.*}}[%[[OFFSET]]] : (!llvm.ptr, i64) -> !llvm.ptr, i8
megakernel.kernel @step(%x: memref<8xf32> {megakernel.role = #megakernel.role<batch>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 2147483424 : i64,
                shared_bytes = 0 : i64} {
  %h = megakernel.buffer {offset = 2147483392 : i64} : memref<8xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8xf32>) outs(%h : memref<8xf32>) sizes [8] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.return
}

// -----

// An argument of 2^31 elements.
// CHECK: gpu.module @step_module {{.*}}dlti.dl_spec = #dlti.dl_spec<index = 64 : i32>
megakernel.kernel @step(%x: memref<2147483648xi8> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<2147483648xi8> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 0 : i64,
                shared_bytes = 0 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<2147483648xi8>) outs(%y : memref<2147483648xi8>) sizes [1024] {
      megakernel.yield %a : tensor<2147483648xi8>
    }
  }
  megakernel.return
}

// -----

// One element less.
// CHECK: gpu.module @step_module {{.*}}dlti.dl_spec = #dlti.dl_spec<index = 32 : i32>
megakernel.kernel @step(%x: memref<2147483647xi8> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<2147483647xi8> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 0 : i64,
                shared_bytes = 0 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<2147483647xi8>) outs(%y : memref<2147483647xi8>) sizes [1024] {
      megakernel.yield %a : tensor<2147483647xi8>
    }
  }
  megakernel.return
}
