// Integer arithmetic that PyTorch defines otherwise than arith does.
// RUN: tk-opt %s --tk-normalize-numerics | FileCheck %s

#id = affine_map<(d0) -> (d0)>

// A division that could stop the process gets another divisor; one by a harmless constant stays as it is.
// CHECK-LABEL: func.func @divisions
// CHECK: %[[STOPS:.*]] = arith.ori
// CHECK: %[[DIVISOR:.*]] = arith.select %[[STOPS]], %{{.*}}, %[[B:.*]] : i32
// CHECK: arith.remsi %{{.*}}, %[[DIVISOR]] : i32
// CHECK-NOT: arith.select
// CHECK: arith.divsi
// CHECK: linalg.yield
func.func @divisions(%x: tensor<4xi32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %init = tensor.empty() : tensor<4xi32>
  %three = arith.constant 3 : i32
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xi32>, tensor<4xi32>) outs(%init : tensor<4xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %q = arith.remsi %a, %b : i32
    %d = arith.divsi %q, %three : i32
    linalg.yield %d : i32
  } -> tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func @bools
// CHECK: arith.ori
// CHECK-NOT: arith.addi
func.func @bools(%x: tensor<4xi1>, %y: tensor<4xi1>) -> tensor<4xi1> {
  %init = tensor.empty() : tensor<4xi1>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xi1>, tensor<4xi1>) outs(%init : tensor<4xi1>) {
  ^bb0(%a: i1, %b: i1, %out: i1):
    %s = arith.addi %a, %b : i1
    linalg.yield %s : i1
  } -> tensor<4xi1>
  return %r : tensor<4xi1>
}

// A divisor that was chosen may still be zero; the quotient is zero then.
// CHECK-LABEL: func.func @chosen
// CHECK: %[[CHOSEN:.*]] = arith.select
// CHECK: arith.select %{{.*}}, %{{.*}}, %[[CHOSEN]] : i32
// CHECK-NEXT: %[[QUOTIENT:.*]] = arith.divsi
// CHECK: %[[SAFE:.*]] = arith.select %{{.*}}, %{{.*}}, %[[QUOTIENT]] : i32
// CHECK-NEXT: linalg.yield %[[SAFE]]
func.func @chosen(%x: tensor<4xi32>, %y: tensor<4xi1>) -> tensor<4xi32> {
  %init = tensor.empty() : tensor<4xi32>
  %zero = arith.constant 0 : i32
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xi32>, tensor<4xi1>) outs(%init : tensor<4xi32>) {
  ^bb0(%a: i32, %c: i1, %out: i32):
    %b = arith.select %c, %a, %zero : i32
    %d = arith.divsi %a, %b : i32
    linalg.yield %d : i32
  } -> tensor<4xi32>
  return %r : tensor<4xi32>
}
