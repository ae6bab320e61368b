// Results that have no memory of their own are copied.
// RUN: tk-opt %s --tk-schedule-phases=target=cpu | FileCheck %s

// An argument that is returned, and a value that is returned twice.
// CHECK-LABEL: megakernel.kernel @copies
// CHECK-SAME: (%[[X:.*]]: memref<4xf32> {{{.*}}}, %[[R0:.*]]: memref<4xf32> {{{.*}}}, %[[R1:.*]]: memref<4xf32> {{{.*}}}, %[[R2:.*]]: memref<4xf32>
// CHECK: megakernel.tile ins(%{{.*}} = %[[X]] : memref<4xf32>) outs(%[[R1]] : memref<4xf32>)
// CHECK: megakernel.phase {
// CHECK: megakernel.tile ins(%{{.*}} = %[[X]] : memref<4xf32>) outs(%[[R0]] : memref<4xf32>)
// CHECK: megakernel.tile ins(%{{.*}} = %[[R1]] : memref<4xf32>) outs(%[[R2]] : memref<4xf32>)
megakernel.step @copies(%x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>},
        tensor<4xf32> {megakernel.role = #megakernel.role<output>},
        tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  %y = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  megakernel.return %x, %y, %y : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// A reshape of a value is a view of its memory: here the output is, the other way round.
// CHECK-LABEL: megakernel.kernel @reshaped
// CHECK-SAME: (%[[X:.*]]: memref<6xf32> {{{.*}}}, %[[R:.*]]: memref<2x3xf32>
// CHECK-NEXT: %[[FLAT:.*]] = memref.collapse_shape %[[R]]
// CHECK-NEXT: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%{{.*}} = %[[X]] : memref<6xf32>) outs(%[[FLAT]] : memref<6xf32>)
megakernel.step @reshaped(%x: tensor<6xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2x3xf32> {megakernel.role = #megakernel.role<output>}) {
  %y = megakernel.fused(%a = %x : tensor<6xf32>) -> tensor<6xf32> {
    megakernel.yield %a : tensor<6xf32>
  }
  %v = tensor.expand_shape %y [[0, 1]] output_shape [2, 3] : tensor<6xf32> into tensor<2x3xf32>
  megakernel.return %v : tensor<2x3xf32>
}
