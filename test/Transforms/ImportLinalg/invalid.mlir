// RUN: tk-opt %s --tk-import-linalg --split-input-file --verify-diagnostics

// expected-error @below {{argument 0 has no role, expected 'megakernel.role' to be one of state, batch, constant, loss, gradient, new_state, output}}
func.func @no_role(%x: tensor<4xf32>) {
  return
}

// -----

// expected-error @below {{result 0 has the role "weights", expected 'megakernel.role' to be one of}}
func.func @unknown_role(%x: tensor<4xf32> {megakernel.role = "batch"})
    -> (tensor<4xf32> {megakernel.role = "weights"}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{argument 0 has the role 1 : i64, expected 'megakernel.role' to be one of}}
func.func @no_text(%x: tensor<4xf32> {megakernel.role = 1 : i64}) {
  return
}

// -----

// expected-error @below {{holds 2 functions, expected one: the training step}}
module {
  func.func @one() {
    return
  }
  func.func @two() {
    return
  }
}

// -----

// expected-error @below {{holds 0 functions, expected one: the training step}}
module {
}

// -----

// expected-error @below {{has no body, expected the training step}}
func.func private @declared(tensor<4xf32> {megakernel.role = "batch"})

// -----

// expected-error @below {{has control flow between blocks, expected a single block: a training step is static}}
func.func @blocks(%x: tensor<4xf32> {megakernel.role = "batch"}) {
  cf.br ^next
^next:
  return
}

// -----

// What the step's own constraints refuse is reported at the function.
// expected-error @below {{argument 0 has type 'f32', expected a ranked tensor of static shape (S1)}}
func.func @scalar(%x: f32 {megakernel.role = "batch"}) {
  return
}
