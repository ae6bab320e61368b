// RUN: tk-opt %s --tk-keep-rounding | FileCheck %s
// RUN: tk-opt %s --tk-keep-rounding --canonicalize | FileCheck %s --check-prefix=KEPT
// RUN: tk-opt %s --canonicalize | FileCheck %s --check-prefix=LOST

// Every operation that can carry flags loses them.
// CHECK-LABEL: func.func @flags
// CHECK-NOT: fastmath
func.func @flags(%a: f32, %b: vector<4xf32>) -> (f32, vector<4xf32>) {
  %0 = arith.mulf %a, %a fastmath<contract> : f32
  %1 = math.exp %b fastmath<fast> : vector<4xf32>
  return %0, %1 : f32, vector<4xf32>
}

// A value that was rounded stays rounded.
// KEPT-LABEL: func.func @rounded
// KEPT: arith.truncf
// KEPT: arith.extf
// LOST-LABEL: func.func @rounded
// LOST-NOT: arith.truncf
// LOST: return
func.func @rounded(%a: f32) -> f32 {
  %0 = arith.truncf %a fastmath<contract> : f32 to bf16
  %1 = arith.extf %0 fastmath<contract> : bf16 to f32
  return %1 : f32
}

// Nothing else changes: integers, and conversions that lose nothing.
// KEPT-LABEL: func.func @exact
// KEPT-NEXT: return %arg0, %arg1 : bf16, i32
func.func @exact(%a: bf16, %b: i32) -> (bf16, i32) {
  %0 = arith.extf %a : bf16 to f32
  %1 = arith.truncf %0 : f32 to bf16
  return %1, %b : bf16, i32
}
