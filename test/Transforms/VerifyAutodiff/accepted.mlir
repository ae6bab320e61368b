// Steps whose structure is in order. The pass changes none of them.
// RUN: tk-opt %s --tk-verify-autodiff | FileCheck %s

#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>

// CHECK-LABEL: megakernel.step @descent
// CHECK-COUNT-2: linalg.generic
// CHECK: megakernel.return
megakernel.step @descent(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>},
                         %x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<4xf32> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 0 : i64},
        tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %loss = linalg.generic {indexing_maps = [#id, #id, #all], iterator_types = ["reduction"]}
      ins(%w, %x : tensor<4xf32>, tensor<4xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %p, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %new = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%w : tensor<4xf32>) {
  ^bb0(%g: f32, %old: f32):
    %d = arith.subf %old, %g : f32
    linalg.yield %d : f32
  } -> tensor<4xf32>
  megakernel.return %loss, %x, %new : tensor<f32>, tensor<4xf32>, tensor<4xf32>
}

// A frozen parameter is returned unchanged; a counter that the loss does not read may change in any way.
// CHECK-LABEL: megakernel.step @frozen
megakernel.step @frozen(%w: tensor<f32> {megakernel.role = #megakernel.role<state>},
                        %count: tensor<i64> {megakernel.role = #megakernel.role<state>},
                        %x: tensor<f32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
        tensor<i64> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64}) {
  %loss = arith.mulf %w, %x : tensor<f32>
  %next = arith.addi %count, %count : tensor<i64>
  megakernel.return %loss, %w, %next : tensor<f32>, tensor<f32>, tensor<i64>
}

// Without a loss there are no gradients to expect.
// CHECK-LABEL: megakernel.step @average
megakernel.step @average(%w: tensor<f32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  %half = arith.mulf %w, %w : tensor<f32>
  megakernel.return %half : tensor<f32>
}

// CHECK-LABEL: megakernel.step @exchange
megakernel.step @exchange(%w: tensor<f32> {megakernel.role = #megakernel.role<state>},
                          %v: tensor<f32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64}) {
  %loss = arith.mulf %w, %w : tensor<f32>
  megakernel.return %loss, %v, %loss : tensor<f32>, tensor<f32>, tensor<f32>
}
