// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// Tiles of 64 rows are multiplied by warpgroups, two of them here, each with half of a chunk's k. Operands lie in
// panels of 64 elements, without padding, and each thread makes its stores visible ahead of the barrier. A chunk's
// product starts before the next one is stored and the one after that is loaded, and is waited for behind that.
// CHECK: gpu.func @product
// CHECK: memref.view %{{.*}} to memref<64x64xbf16, #gpu.address_space<workgroup>>
// CHECK: arith.xori
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK-NEXT: gpu.barrier
// CHECK: scf.for
// CHECK-NOT: gpu.barrier
// CHECK: llvm.inline_asm {{.*}}"wgmma.fence.sync.aligned;"
// CHECK-COUNT-2: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{.*}}, adds, 1, 1, 0, 1;
// CHECK-NOT: mma_async
// CHECK: wgmma.commit_group.sync.aligned
// CHECK: vector.store {{.*}} #gpu.address_space<workgroup>
// CHECK: vector.load
// CHECK: wgmma.wait_group.sync.aligned 0
// CHECK-NEXT: llvm.extractvalue
// CHECK: nvvm.fence.proxy
// CHECK-NEXT: gpu.barrier
// CHECK-NEXT: scf.yield
// CHECK-NOT: nvvm.mma.sync
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<64x512xbf16> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<512x64xbf16> {megakernel.role = #megakernel.role<state>},
                           %y: memref<64x64xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 256 : i64, target = "sm_90a", shared_bytes = 50000 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<64x512xbf16>, %b = %w : memref<512x64xbf16>) outs(%y : memref<64x64xf32>)
        sizes [64, 64, 64] {
      %zero = arith.constant dense<0.0> : tensor<64x64xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<64x512xbf16>, tensor<512x64xbf16>) outs(%zero : tensor<64x64xf32>) {
      ^bb0(%in: bf16, %in2: bf16, %out: f32):
        %l = arith.extf %in : bf16 to f32
        %q = arith.extf %in2 : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<64x64xf32>
      megakernel.yield %r : tensor<64x64xf32>
    }
  }
  megakernel.return
}
