// What goes in and out of a fused region: constraints F1 and F4 of megakernel.fused.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

func.func @argument_type(%x: tensor<4xf32>) {
  // expected-error @below {{has region arguments of other types than its operands (F1)}}
  %y = "megakernel.fused"(%x) ({
  ^bb0(%a: tensor<5xf32>):
    "megakernel.yield"(%a) : (tensor<5xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @result_type(%x: tensor<4xf32>) {
  // expected-error @below {{yields values of other types than its results (F1)}}
  %y = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<4xi32> {
    megakernel.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @yields_nothing() {
  // expected-error @below {{yields nothing, expected at least one value}}
  "megakernel.fused"() ({
    "megakernel.yield"() : () -> ()
  }) : () -> ()
  return
}

// -----

func.func @no_terminator(%x: tensor<4xf32>) {
  %y = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{block with no terminator}}
    %r = tensor.empty() : tensor<4xf32>
  }
  return
}

// -----

func.func @shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{yields values of different shapes, expected one shape for all (F4)}}
  %z:2 = megakernel.fused(%a = %x : tensor<4xf32>, %b = %y : tensor<5xf32>) -> (tensor<4xf32>, tensor<5xf32>) {
    megakernel.yield %a, %b : tensor<4xf32>, tensor<5xf32>
  }
  return
}
