// Operands and results of megakernel.fused that nobody needs disappear.
// RUN: tk-opt %s --canonicalize --split-input-file | FileCheck %s

// One value bound twice is bound once; one that the region does not read is not bound.
// CHECK-LABEL: func.func @operands
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>)
// CHECK: megakernel.fused(%[[A:.*]] = %[[X]] : tensor<4xf32>) -> tensor<4xf32> {
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[A]] : tensor<4xf32>, tensor<4xf32>)
#id = affine_map<(d0) -> (d0)>
func.func @operands(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %z = megakernel.fused(%a = %x : tensor<4xf32>, %unused = %y : tensor<4xf32>, %b = %x : tensor<4xf32>)
      -> tensor<4xf32> {
    %init = tensor.empty() : tensor<4xf32>
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
        ins(%a, %b : tensor<4xf32>, tensor<4xf32>) outs(%init : tensor<4xf32>) {
    ^bb0(%in: f32, %in2: f32, %out: f32):
      %s = arith.addf %in, %in2 : f32
      linalg.yield %s : f32
    } -> tensor<4xf32>
    megakernel.yield %r : tensor<4xf32>
  }
  return %z : tensor<4xf32>
}

// -----

// A result that nobody reads goes, and with it the operand that only it needed.
// CHECK-LABEL: func.func @results
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xi32>)
// CHECK-NEXT: %[[Z:.*]] = megakernel.fused(%[[A:.*]] = %[[Y]] : tensor<4xi32>) -> tensor<4xi32> attributes {note = "kept"} {
// CHECK-NEXT: megakernel.yield %[[A]] : tensor<4xi32>
// CHECK-NEXT: }
// CHECK-NEXT: return %[[Z]]
func.func @results(%x: tensor<4xf32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %z:2 = megakernel.fused(%a = %x : tensor<4xf32>, %b = %y : tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi32>)
      attributes {note = "kept"} {
    megakernel.yield %a, %b : tensor<4xf32>, tensor<4xi32>
  }
  return %z#1 : tensor<4xi32>
}

// -----

// A fused op without readers is dead.
// CHECK-LABEL: func.func @dead
// CHECK-NOT: megakernel.fused
// CHECK: return
func.func @dead(%x: tensor<4xf32>) {
  %z = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  return
}

// -----

// Where every operand and result is needed, nothing changes.
// CHECK-LABEL: func.func @all_needed
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>)
// CHECK-NEXT: %[[Z:.*]]:2 = megakernel.fused(%[[A:.*]] = %[[X]] : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK-NEXT: megakernel.yield %[[A]], %[[A]]
// CHECK: return %[[Z]]#0, %[[Z]]#1
func.func @all_needed(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z:2 = megakernel.fused(%a = %x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    megakernel.yield %a, %a : tensor<4xf32>, tensor<4xf32>
  }
  return %z#0, %z#1 : tensor<4xf32>, tensor<4xf32>
}
