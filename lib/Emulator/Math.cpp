//===- Math.cpp - the GPU's approximations --------------------------------===//
//
// Where PTX bounds the error by one unit in the last place, the result is either neighbour of the exact one, by chance
// that hangs on the operand and the seed: code that needs more than is promised is found.
//
//===----------------------------------------------------------------------===//

#include "lib/Emulator/Emulator.h"

#include <cmath>
#include <cstring>

namespace trainkernel::emulator {

static float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

static float eitherNeighbour(double exact, float operand) {
  auto nearest = static_cast<float>(exact);
  if (nearest == exact || !std::isfinite(nearest))
    return nearest;
  float other = std::nextafter(nearest, exact > nearest ? INFINITY : -INFINITY);
  uint32_t bits;
  std::memcpy(&bits, &operand, sizeof bits);
  std::minstd_rand chance(bits * 2654435761u + static_cast<uint32_t>(launch->spec.errorSeed));
  chance.discard(2);
  return chance() & 64 ? nearest : other;
}

TK_EMU_EXPORT float tk_emu_rcp_approx_ftz(float x) {
  x = flush(x);
  return flush(eitherNeighbour(1.0 / x, x));
}

TK_EMU_EXPORT float tk_emu_rsqrt_approx_ftz(float x) {
  x = flush(x);
  return flush(eitherNeighbour(1.0 / std::sqrt(static_cast<double>(x)), x));
}

TK_EMU_EXPORT float tk_emu_rsqrt(float x) { return eitherNeighbour(1.0 / std::sqrt(static_cast<double>(x)), x); }

// What code generators call where the host has no bfloat16. A bfloat16 is returned in the low bits of where a float is.
TK_EMU_EXPORT float __truncsfbf2(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = x != x ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

TK_EMU_EXPORT uint64_t tk_emu_time() { return ++launch->ticks; }

} // namespace trainkernel::emulator
