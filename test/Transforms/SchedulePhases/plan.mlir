// The user decides instead of the planner.
// RUN: tk-opt %s --tk-schedule-phases="target=sm_90a plan=grid=8,cluster=4,tile[0.0]=32x32x64" | FileCheck %s
// RUN: tk-opt %s --tk-schedule-phases="target=sm_90a grid=8" | FileCheck %s --check-prefix=GRID
// RUN: tk-opt %s --tk-schedule-phases=target=sm_90a | FileCheck %s --check-prefix=FREE

// CHECK: grid = 8 : i64
// CHECK-SAME: plan = {chosen = {cluster = {{.*}}}, considered = [{{.*}}], overridden = {cluster = 4 : i64, grid = 8 : i64, ns = {{[0-9]+}} : i64}, overrides = "grid=8,cluster=4,tile[0.0]=32x32x64"}
// CHECK: sizes [32, 32, 64]
// CHECK: sizes [8, 64]
// GRID: overrides = "grid=8"
// FREE: considered = [{cluster = {{[0-9]+}} : i64, grid = {{[0-9]+}} : i64, ns = {{[0-9]+}} : i64}, {
// FREE-NOT: overrid

// What cannot be met is refused, with what can.
// RUN: not tk-opt %s --tk-schedule-phases=plan=grdi=8 2>&1 | FileCheck %s --check-prefix=KEY
// RUN: not tk-opt %s --tk-schedule-phases=plan=tile[0.0]=8xx8 2>&1 | FileCheck %s --check-prefix=KEY
// RUN: not tk-opt %s --tk-schedule-phases=plan=grid=0 2>&1 | FileCheck %s --check-prefix=KEY
// KEY: error: the plan has '{{.*}}', expected grid=N, cluster=N, tile[PHASE.OP]=SIZES or cta[PHASE.OP]=N
// RUN: not tk-opt %s --tk-schedule-phases=plan=grid=4,grid=8 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: error: the plan has 'grid' twice, expected it once
// RUN: not tk-opt %s --tk-schedule-phases="grid=4 plan=grid=8" 2>&1 | FileCheck %s --check-prefix=BOTH
// BOTH: error: the plan's grid is 8, but the option 'grid' is 4, expected one of them
// RUN: not tk-opt %s --tk-schedule-phases=plan=cluster=32 2>&1 | FileCheck %s --check-prefix=CLUSTER
// CLUSTER: error: the plan's cluster is 32, expected at most 16 CTAs on sm_90a
// RUN: not tk-opt %s --tk-schedule-phases="target=sm_80 plan=cluster=2" 2>&1 | FileCheck %s --check-prefix=AMPERE
// AMPERE: error: the plan's cluster is 2, expected at most 1 CTAs on sm_80
// RUN: not tk-opt %s --tk-schedule-phases=plan=grid=6,cluster=4 2>&1 | FileCheck %s --check-prefix=WHOLE
// WHOLE: error: the plan's grid is 6 and its cluster 4, expected a grid of whole clusters, such as 8
// RUN: not tk-opt %s --tk-schedule-phases=plan=grid=1057 2>&1 | FileCheck %s --check-prefix=MANY
// MANY: error: the plan's grid is 1057, expected at most 1056 CTAs, which run at once on sm_90a
// RUN: not tk-opt %s --tk-schedule-phases=plan=tile[2.0]=1 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: error: the plan has tile[2.0]=1, which names no operation, expected one of: 0.0, 1.0
// RUN: not tk-opt %s --tk-schedule-phases=plan=tile[0.0]=32x32 2>&1 | FileCheck %s --check-prefix=RANK
// RANK: error: the plan has tile[0.0]=32x32, expected 3 sizes, for the domain 64x64x4096
// RUN: not tk-opt %s --tk-schedule-phases=plan=tile[0.0]=20x32x64 2>&1 | FileCheck %s --check-prefix=UNIT
// UNIT: error: the plan has tile[0.0]=20x32x64, expected powers of two from 16 on along m and n, and a multiple of 16 along k
// RUN: not tk-opt %s --tk-schedule-phases=plan=tile[0.0]=32x32x4096 2>&1 | FileCheck %s --check-prefix=SHARED
// SHARED: error: the plan has tile[0.0]=32x32x4096, which needs {{[0-9]+}} bytes of shared memory, expected at most 232432; the planner's tiles are {{[0-9]+x[0-9]+x[0-9]+}}
// RUN: not tk-opt %s --tk-schedule-phases=plan=tile[0.0]=256x256x64 2>&1 | FileCheck %s --check-prefix=REGISTERS
// REGISTERS: error: the plan has tile[0.0]=256x256x64, expected fewer results, since those of a thread do not fit
// RUN: not tk-opt %s --tk-schedule-phases=plan=tile[1.0]=2x32 2>&1 | FileCheck %s --check-prefix=SUM
// SUM: error: the plan has tile[1.0]=2x32, expected 64 in place 1 of the domain 64x64, since sums stay whole
// RUN: not tk-opt %s --tk-schedule-phases=plan=tile[1.0]=65x64 2>&1 | FileCheck %s --check-prefix=EXTENT
// EXTENT: error: the plan has tile[1.0]=65x64, expected at most 64 in place 0 of the domain 64x64
// RUN: not tk-opt %s --tk-schedule-phases="target=cpu plan=tile[0.0]=64x64x4096" 2>&1 | FileCheck %s --check-prefix=CPU
// CPU: error: the plan has tile[0.0]=64x64x4096, which needs {{[0-9]+}} bytes of scratch, expected at most 262144
megakernel.step @step(%x: tensor<64x4096xf32> {megakernel.role = #megakernel.role<batch>},
                      %w: tensor<4096x64xf32> {megakernel.role = #megakernel.role<constant>})
    -> (tensor<64xf32> {megakernel.role = #megakernel.role<output>}) {
  %y = megakernel.fused(%a = %x : tensor<64x4096xf32>, %b = %w : tensor<4096x64xf32>) -> tensor<64x64xf32> {
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<64x64xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                                          affine_map<(m, n, k) -> (m, n)>],
                         iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<64x4096xf32>, tensor<4096x64xf32>) outs(%init : tensor<64x64xf32>) {
    ^bb0(%l: f32, %r: f32, %sum: f32):
      %product = arith.mulf %l, %r : f32
      %next = arith.addf %sum, %product : f32
      linalg.yield %next : f32
    } -> tensor<64x64xf32>
    megakernel.yield %r : tensor<64x64xf32>
  }
  %s = megakernel.fused(%a = %y : tensor<64x64xf32>) -> tensor<64xf32> {
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<64xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64xf32>) -> tensor<64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>],
                         iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<64x64xf32>) outs(%init : tensor<64xf32>) {
    ^bb0(%e: f32, %sum: f32):
      %next = arith.addf %sum, %e : f32
      linalg.yield %next : f32
    } -> tensor<64xf32>
    megakernel.yield %r : tensor<64xf32>
  }
  megakernel.return %s : tensor<64xf32>
}
