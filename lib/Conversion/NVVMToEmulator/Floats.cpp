//===- Floats.cpp - the GPU's arithmetic on the host ----------------------===//

#include "lib/Conversion/NVVMToEmulator/EmulatorCalls.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::megakernel;

// The device library's functions of float32 whose namesakes of the C library are as exact or exacter.
static const llvm::StringSet<> &libraryFunctions() {
  static const llvm::StringSet<> names = {
      "acosf", "acoshf", "asinf", "asinhf", "atan2f",  "atanf",  "atanhf", "cbrtf",   "ceilf",  "copysignf",  "cosf",
      "coshf", "erfcf",  "erff",  "exp10f", "exp2f",   "expf",   "expm1f", "fabsf",   "fdimf",  "floorf",     "fmaf",
      "fmaxf", "fminf",  "fmodf", "hypotf", "lgammaf", "log10f", "log1pf", "log2f",   "logf",   "nearbyintf", "powf",
      "rintf", "roundf", "sinf",  "sinhf",  "sqrtf",   "tanf",   "tanhf",  "tgammaf", "truncf", "remainderf"};
  return names;
}

static void replace(Operation *op, Value value) {
  op->getResult(0).replaceAllUsesWith(value);
  op->erase();
}

// "__nv_expf" and, of float64, "__nv_exp".
static LogicalResult emulateLibraryCall(LLVM::CallOp op, StringRef callee, EmulatorCalls &calls) {
  StringRef name = callee.drop_front(StringRef("__nv_").size());
  bool isKnown = libraryFunctions().contains(name) || libraryFunctions().contains((name + "f").str());
  OpBuilder builder(op);
  ValueRange arguments = op.getArgOperands();
  if (name == "fabsf")
    replace(op, LLVM::FAbsOp::create(builder, op.getLoc(), arguments[0]));
  else if (name == "fmaf")
    replace(op, LLVM::FMAOp::create(builder, op.getLoc(), arguments[0], arguments[1], arguments[2]));
  else if (name == "rsqrtf")
    replace(op, calls.call(op, "tk_emu_rsqrt", op.getResult().getType(), arguments));
  else if (isKnown)
    replace(op, calls.call(op, name, op.getResult().getType(), arguments));
  else
    return op.emitError() << "calls '" << callee << "' of the device library, which the emulator does not know";
  return success();
}

static LogicalResult emulateIntrinsic(LLVM::CallIntrinsicOp op, EmulatorCalls &calls) {
  StringRef name = op.getIntrin();
  if (!name.starts_with("llvm.nvvm."))
    return success();
  StringRef function = llvm::StringSwitch<StringRef>(name)
                           .Case("llvm.nvvm.rcp.approx.ftz.f", "tk_emu_rcp_approx_ftz")
                           .Case("llvm.nvvm.rsqrt.approx.ftz.f", "tk_emu_rsqrt_approx_ftz")
                           .Default("");
  if (function.empty())
    return op.emitError() << "'" << name << "' is an intrinsic that the emulator does not know";
  replace(op, calls.call(op, function, op.getResult(0).getType(), op.getArgs()));
  return success();
}

// To the nearest bfloat16, as cvt.rn.bf16.f32 does, with one NaN for all. The host has no such instruction.
static void roundToBf16(LLVM::FPTruncOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value value = op.getArg();
  auto like = [&](Type element) -> Type {
    auto vector = dyn_cast<VectorType>(value.getType());
    return vector ? Type(vector.clone(element)) : element;
  };
  Type i32 = like(builder.getI32Type()), i16 = like(builder.getI16Type());
  auto constant = [&](int32_t number) -> Value {
    auto vector = dyn_cast<VectorType>(i32);
    TypedAttr attribute = builder.getI32IntegerAttr(number);
    if (vector)
      attribute = DenseElementsAttr::get(vector, Attribute(attribute));
    return LLVM::ConstantOp::create(builder, loc, i32, attribute);
  };
  Value bits = LLVM::BitcastOp::create(builder, loc, i32, value);
  Value high = LLVM::LShrOp::create(builder, loc, bits, constant(16));
  Value odd = LLVM::AndOp::create(builder, loc, high, constant(1));
  Value half = LLVM::AddOp::create(builder, loc, odd, constant(0x7FFF));
  Value rounded = LLVM::LShrOp::create(builder, loc, LLVM::AddOp::create(builder, loc, bits, half), constant(16));
  Value isNaN = LLVM::FCmpOp::create(builder, loc, LLVM::FCmpPredicate::uno, value, value);
  Value chosen = LLVM::SelectOp::create(builder, loc, isNaN, constant(0x7FFF), rounded);
  Value narrow = LLVM::TruncOp::create(builder, loc, i16, chosen);
  replace(op, LLVM::BitcastOp::create(builder, loc, op.getType(), narrow));
}

LogicalResult mlir::megakernel::emulateFloats(Operation *op, EmulatorCalls &calls) {
  if (auto call = dyn_cast<LLVM::CallOp>(op)) {
    std::optional<StringRef> callee = call.getCallee();
    if (callee && callee->starts_with("__nv_"))
      return emulateLibraryCall(call, *callee, calls);
    auto function =
        callee ? SymbolTable::lookupNearestSymbolFrom<LLVM::LLVMFuncOp>(op, call.getCalleeAttr()) : LLVM::LLVMFuncOp();
    if (!function || function.isExternal())
      return op->emitError() << "calls " << (callee ? *callee : StringRef("a pointer"))
                             << ", which the emulator does not know";
  } else if (auto intrinsic = dyn_cast<LLVM::CallIntrinsicOp>(op)) {
    return emulateIntrinsic(intrinsic, calls);
  } else if (auto multiply = dyn_cast<LLVM::FMulAddOp>(op)) {
    // The GPU's code fuses all of these, the host's those that it likes to.
    OpBuilder builder(op);
    replace(op, LLVM::FMAOp::create(builder, op->getLoc(), multiply.getA(), multiply.getB(), multiply.getC()));
  } else if (auto narrow = dyn_cast<LLVM::FPTruncOp>(op)) {
    bool isToBf16 = getElementTypeOrSelf(narrow.getType()).isBF16();
    if (isToBf16 && !getElementTypeOrSelf(narrow.getArg().getType()).isF32())
      return op->emitError("rounds to bfloat16 what is not float32, which the emulator does not know");
    if (isToBf16)
      roundToBf16(narrow);
  }
  return success();
}
