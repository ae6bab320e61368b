// RUN: tk-opt %s --tk-normalize-numerics --mlir-print-local-scope --split-input-file | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// A bfloat16 sum: the start is widened, the sum is in float32, and it is rounded once.
// CHECK-LABEL: func.func @sum
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xbf16>, %[[INIT:.*]]: tensor<4xbf16>)
// CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[INIT]] : tensor<4xbf16>) outs(%{{.*}} : tensor<4xf32>)
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}"reduction"]} ins(%[[X]] : tensor<4x8xbf16>) outs(%[[WIDE]] : tensor<4xf32>)
// CHECK: %[[E:.*]] = arith.extf %{{.*}} : bf16 to f32
// CHECK: arith.addf %[[E]], %{{.*}} : f32
// CHECK: linalg.generic {{.*}} ins(%[[SUM]] : tensor<4xf32>) outs(%{{.*}} : tensor<4xbf16>)
// CHECK: arith.truncf %{{.*}} : f32 to bf16
func.func @sum(%x: tensor<4x8xbf16>, %init: tensor<4xbf16>) -> tensor<4xbf16> {
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xbf16>) outs(%init : tensor<4xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %s = arith.addf %in, %out : bf16
    linalg.yield %s : bf16
  } -> tensor<4xbf16>
  return %r : tensor<4xbf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// The same for a float16 maximum.
// CHECK-LABEL: func.func @maximum
// CHECK: linalg.generic {{.*}}"reduction"]} ins(%{{.*}} : tensor<4x8xf16>) outs(%{{.*}} : tensor<4xf32>)
// CHECK: arith.maximumf %{{.*}}, %{{.*}} : f32
func.func @maximum(%x: tensor<4x8xf16>, %init: tensor<4xf16>) -> tensor<4xf16> {
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xf16>) outs(%init : tensor<4xf16>) {
  ^bb0(%in: f16, %out: f16):
    %s = arith.maximumf %in, %out : f16
    linalg.yield %s : f16
  } -> tensor<4xf16>
  return %r : tensor<4xf16>
}

// -----

#id = affine_map<(d0) -> (d0)>
// A Python scalar is rounded at compile time; float64 gets to bfloat16 by way of float32.
// CHECK-LABEL: func.func @scalars
// CHECK-DAG: %[[C:.*]] = arith.constant 1.000000e-03 : f32
// CHECK: %[[S:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK: arith.mulf %[[S]], %[[C]] : f32
// CHECK: %[[T:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK: arith.truncf %[[T]] : f32 to bf16
func.func @scalars(%x: tensor<4xf64>, %f: tensor<4xf32>, %b: tensor<4xbf16>) -> (tensor<4xf32>, tensor<4xbf16>) {
  %c = arith.constant 1.0e-3 : f64
  %r:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf64>) outs(%f, %b : tensor<4xf32>, tensor<4xbf16>) {
  ^bb0(%in: f64, %out: f32, %out2: bf16):
    %k = arith.truncf %c : f64 to f32
    %s = arith.truncf %in : f64 to f32
    %m = arith.mulf %s, %k : f32
    %t = arith.truncf %in : f64 to bf16
    linalg.yield %m, %t : f32, bf16
  } -> (tensor<4xf32>, tensor<4xbf16>)
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xbf16>
}
