// What a fused region may hold: constraint F2 of megakernel.fused.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

func.func @named_op(%x: tensor<4xf32>) {
  // expected-error @below {{holds an op that is not allowed in a fused region, expected constants, linalg.generic, linalg.fill or tensor views (F2)}}
  %y = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    %init = tensor.empty() : tensor<4xf32>
    // expected-note @below {{the op is 'linalg.exp'}}
    %r = linalg.exp ins(%a : tensor<4xf32>) outs(%init : tensor<4xf32>) -> tensor<4xf32>
    megakernel.yield %r : tensor<4xf32>
  }
  return
}

// -----

func.func @dynamic_shape(%x: tensor<?xf32>) {
  // expected-error @below {{holds an op of dynamic or empty shape or dynamic offset, expected static shapes without zero extents (F2)}}
  %y = megakernel.fused(%a = %x : tensor<?xf32>) -> tensor<?xf32> {
    // expected-note @below {{the op is 'megakernel.yield'}}
    megakernel.yield %a : tensor<?xf32>
  }
  return
}

// -----

func.func @dynamic_offset(%x: tensor<4xf32>) {
  // expected-error @below {{holds an op of dynamic or empty shape or dynamic offset, expected static shapes without zero extents (F2)}}
  %y = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<2xf32> {
    %i = arith.constant 1 : index
    // expected-note @below {{the op is 'tensor.extract_slice'}}
    %r = tensor.extract_slice %a[%i] [2] [1] : tensor<4xf32> to tensor<2xf32>
    megakernel.yield %r : tensor<2xf32>
  }
  return
}
