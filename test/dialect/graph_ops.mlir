// Every op of the graph form prints what it parses: in its own syntax, in the generic one, and through bytecode.
// RUN: tk-opt %s | tk-opt | FileCheck %s
// RUN: tk-opt %s --mlir-print-op-generic | tk-opt | FileCheck %s
// RUN: tk-opt %s --emit-bytecode | tk-opt | FileCheck %s

// CHECK: #[[$ID:.+]] = affine_map<(d0) -> (d0)>

// All roles, the update map and the gradient map.
// CHECK-LABEL: megakernel.step @roles(
// CHECK-SAME: %[[W:.*]]: tensor<8xf32> {megakernel.path = "state[0]", megakernel.role = #megakernel.role<state>}
// CHECK-SAME: %[[X:.*]]: tensor<8xf32> {megakernel.role = #megakernel.role<batch>}
// CHECK-SAME: %[[C:.*]]: tensor<f32> {megakernel.role = #megakernel.role<constant>}
// CHECK-SAME: -> (tensor<f32> {megakernel.role = #megakernel.role<loss>}
// CHECK-SAME: tensor<8xf32> {megakernel.gradient_of = 0 : i64, megakernel.role = #megakernel.role<gradient>}
// CHECK-SAME: tensor<8xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}
// CHECK-SAME: tensor<8xf32> {megakernel.role = #megakernel.role<output>})
// CHECK-NEXT: megakernel.return %[[C]], %[[X]], %[[W]], %[[X]] : tensor<f32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
megakernel.step @roles(%w: tensor<8xf32> {megakernel.role = #megakernel.role<state>, megakernel.path = "state[0]"},
                       %x: tensor<8xf32> {megakernel.role = #megakernel.role<batch>},
                       %c: tensor<f32> {megakernel.role = #megakernel.role<constant>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<8xf32> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 0 : i64},
        tensor<8xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
        tensor<8xf32> {megakernel.role = #megakernel.role<output>}) {
  megakernel.return %c, %x, %w, %x : tensor<f32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Operands are bound to region arguments; several results stand in parentheses.
// CHECK-LABEL: megakernel.step @fused
// CHECK-SAME: (%[[X:.*]]: tensor<8xf32>
// CHECK: %[[Y:.*]]:2 = megakernel.fused(%[[A:.*]] = %[[X]] : tensor<8xf32>, %[[B:.*]] = %[[X]] : tensor<8xf32>)
// CHECK-SAME: -> (tensor<8xf32>, tensor<8xf32>) attributes {note = "kept"} {
// CHECK: linalg.generic {indexing_maps = [#[[$ID]], #[[$ID]]], iterator_types = ["parallel"]} ins(%[[A]] : tensor<8xf32>)
// CHECK: megakernel.yield %{{.*}}, %[[B]] : tensor<8xf32>, tensor<8xf32>
// CHECK: megakernel.return %[[Y]]#0, %[[Y]]#1
megakernel.step @fused(%x: tensor<8xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<8xf32> {megakernel.role = #megakernel.role<output>},
        tensor<8xf32> {megakernel.role = #megakernel.role<output>}) {
  %y:2 = megakernel.fused(%a = %x : tensor<8xf32>, %b = %x : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
      attributes {note = "kept"} {
    %init = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                         iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%init : tensor<8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %n = arith.negf %in : f32
      linalg.yield %n : f32
    } -> tensor<8xf32>
    megakernel.yield %r, %b : tensor<8xf32>, tensor<8xf32>
  }
  megakernel.return %y#0, %y#1 : tensor<8xf32>, tensor<8xf32>
}

// A step without inputs, and a fused op without operands.
// CHECK-LABEL: megakernel.step @constant() -> (tensor<2xi1>
// CHECK: megakernel.fused() -> tensor<2xi1> {
megakernel.step @constant() -> (tensor<2xi1> {megakernel.role = #megakernel.role<output>}) {
  %y = megakernel.fused() -> tensor<2xi1> {
    %c = arith.constant dense<true> : tensor<2xi1>
    megakernel.yield %c : tensor<2xi1>
  }
  megakernel.return %y : tensor<2xi1>
}
