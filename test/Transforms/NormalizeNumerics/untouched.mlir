// Reductions whose rounding is as PyTorch has it, or is the user's own, stay as they are.
// RUN: tk-opt %s --tk-normalize-numerics | FileCheck %s

#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>

// CHECK-LABEL: func.func @float32
// CHECK-NEXT: linalg.generic {{.*}} ins(%{{.*}} : tensor<8xf32>) outs(%{{.*}} : tensor<f32>)
// CHECK-NEXT: ^bb0
// CHECK-NEXT: arith.addf
// CHECK-NEXT: linalg.yield
func.func @float32(%x: tensor<8xf32>, %init: tensor<f32>) -> tensor<f32> {
  %r = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<8xf32>) outs(%init : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}

// CHECK-LABEL: func.func @integers
// CHECK-NEXT: linalg.generic {{.*}} outs(%{{.*}} : tensor<i8>)
func.func @integers(%x: tensor<8xi8>, %init: tensor<i8>) -> tensor<i8> {
  %r = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<8xi8>) outs(%init : tensor<i8>) {
  ^bb0(%in: i8, %out: i8):
    %s = arith.addi %in, %out : i8
    linalg.yield %s : i8
  } -> tensor<i8>
  return %r : tensor<i8>
}

// CHECK-LABEL: func.func @more_than_a_sum
// CHECK-NEXT: linalg.generic {{.*}} outs(%{{.*}} : tensor<bf16>)
func.func @more_than_a_sum(%x: tensor<8xbf16>, %init: tensor<bf16>) -> tensor<bf16> {
  %r = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<8xbf16>) outs(%init : tensor<bf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %p = arith.mulf %in, %in : bf16
    %s = arith.addf %p, %out : bf16
    linalg.yield %s : bf16
  } -> tensor<bf16>
  return %r : tensor<bf16>
}

// Adding the element to itself is no sum over the elements.
// CHECK-LABEL: func.func @no_accumulation
// CHECK-NEXT: linalg.generic {{.*}} outs(%{{.*}} : tensor<bf16>)
func.func @no_accumulation(%x: tensor<8xbf16>, %init: tensor<bf16>) -> tensor<bf16> {
  %r = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<8xbf16>) outs(%init : tensor<bf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %s = arith.addf %in, %in : bf16
    linalg.yield %s : bf16
  } -> tensor<bf16>
  return %r : tensor<bf16>
}
