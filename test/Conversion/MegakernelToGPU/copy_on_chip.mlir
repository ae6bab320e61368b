// A copy onto the chip is under way while its phase does something else; each thread waits for its own copies before it
// meets the others. Buffers on chip are views of shared memory.
// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

// CHECK: gpu.func @step(
// CHECK: %[[SHARED:.*]] = gpu.dynamic_shared_memory
// CHECK: memref.view %[[SHARED]]{{.*}} to memref<4x16xf32, #gpu.address_space<workgroup>>
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = cg
// CHECK: llvm.inline_asm has_side_effects {{.*}} "cp.async.wait_all;"
// CHECK-NEXT: gpu.barrier
// CHECK: load {{.*}} : memref<4x16xf32, #gpu.address_space<workgroup>>
// CHECK: gpu.return
megakernel.kernel @step(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 0 : i64,
                shared_bytes = 64 : i64} {
  %c = megakernel.buffer {part = 16 : i64, shared_at = 0 : i64} : memref<4x16xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%c : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %c : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}
