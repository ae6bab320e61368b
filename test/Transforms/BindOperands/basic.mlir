// RUN: tk-opt %s --tk-keep-operands --tk-insert-barriers --tk-keep-on-chip --tk-bind-operands --tk-check-schedule -o %t
// RUN: FileCheck %s --input-file %t
// RUN: tk-opt %t --tk-plan-buffers --convert-megakernel-to-gpu --canonicalize | FileCheck %s --check-prefix=GPU

#product = {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>,
                             affine_map<(d0, d1, d2) -> (d0, d1)>],
            iterator_types = ["parallel", "parallel", "reduction"]}

// Three products of a row that the CTA has on chip, with weights that stay: the row is used where it lies, and the
// weights are held in registers.
// CHECK: megakernel.buffer {part = 16 : i64, shared_at = [[AT:[0-9]+]] : i64}
// CHECK: sizes [1, 16, 16] attributes {in_registers, kept_at = 0 : i64, rows_at = [[AT]] : i64}
// CHECK-COUNT-2: sizes [1, 16, 16] attributes {in_registers, kept_at = 0 : i64, reuses_kept, rows_at = [[AT]] : i64}

// Nothing is staged but the weights, which are read from shared memory once.
// GPU: gpu.func @step
// GPU: vector.store {{.*}} : memref<16x24xbf16, #gpu.address_space<workgroup>>
// GPU: nvvm.ldmatrix {{.*}} num = 4
// GPU-NOT: num = 4
// GPU-COUNT-3: nvvm.mma.sync
// GPU-NOT: nvvm.mma.sync
megakernel.kernel @step(%x: memref<4x16xbf16> {megakernel.role = #megakernel.role<batch>},
                        %w: memref<16x16xbf16> {megakernel.role = #megakernel.role<state>},
                        %y0: memref<4x16xf32> {megakernel.role = #megakernel.role<output>},
                        %y1: memref<4x16xf32> {megakernel.role = #megakernel.role<output>},
                        %y2: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a"} {
  %h = megakernel.buffer : memref<4x16xbf16>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xbf16>) outs(%h : memref<4x16xbf16>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xbf16>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<4x16xbf16>, %b = %w : memref<16x16xbf16>) outs(%y0 : memref<4x16xf32>)
        sizes [1, 16, 16] {
      %zero = arith.constant dense<0.0> : tensor<4x16xf32>
      %r = linalg.generic #product ins(%a, %b : tensor<4x16xbf16>, tensor<16x16xbf16>) outs(%zero : tensor<4x16xf32>) {
      ^bb0(%i: bf16, %j: bf16, %o: f32):
        %l = arith.extf %i : bf16 to f32
        %q = arith.extf %j : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %s = arith.addf %p, %o : f32
        linalg.yield %s : f32
      } -> tensor<4x16xf32>
      megakernel.yield %r : tensor<4x16xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<4x16xbf16>, %b = %w : memref<16x16xbf16>) outs(%y1 : memref<4x16xf32>)
        sizes [1, 16, 16] {
      %zero = arith.constant dense<0.0> : tensor<4x16xf32>
      %r = linalg.generic #product ins(%a, %b : tensor<4x16xbf16>, tensor<16x16xbf16>) outs(%zero : tensor<4x16xf32>) {
      ^bb0(%i: bf16, %j: bf16, %o: f32):
        %l = arith.extf %i : bf16 to f32
        %q = arith.extf %j : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %s = arith.addf %p, %o : f32
        linalg.yield %s : f32
      } -> tensor<4x16xf32>
      megakernel.yield %r : tensor<4x16xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<4x16xbf16>, %b = %w : memref<16x16xbf16>) outs(%y2 : memref<4x16xf32>)
        sizes [1, 16, 16] {
      %zero = arith.constant dense<0.0> : tensor<4x16xf32>
      %r = linalg.generic #product ins(%a, %b : tensor<4x16xbf16>, tensor<16x16xbf16>) outs(%zero : tensor<4x16xf32>) {
      ^bb0(%i: bf16, %j: bf16, %o: f32):
        %l = arith.extf %i : bf16 to f32
        %q = arith.extf %j : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %s = arith.addf %p, %o : f32
        linalg.yield %s : f32
      } -> tensor<4x16xf32>
      megakernel.yield %r : tensor<4x16xf32>
    }
  }
  megakernel.return
}
