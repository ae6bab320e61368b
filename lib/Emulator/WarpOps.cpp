//===- WarpOps.cpp - what the threads of a warp do together ---------------===//

#include "lib/Emulator/Emulator.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace trainkernel::emulator {

void meet(uint32_t mask, uint32_t kind, uint32_t site, const void *operands, void *results,
          void (*compute)(Warp &, uint32_t mask, uint32_t kind)) {
  Thread &thread = *launch->current;
  Warp &warp = *thread.warp;
  thread.site = site;
  thread.operands = operands;
  thread.results = results;
  uint32_t own = 1u << thread.lane();
  if (!(mask & own))
    launch->fail("is in " + launch->nameOfSite(site) + " with a mask that leaves it out");
  if (mask & ~warp.all || mask & warp.exited)
    launch->fail("is in " + launch->nameOfSite(site) + " with lanes that have ended or never were");
  auto shares = [&](const WarpOp &op) { return (op.mask & mask) != 0; };
  auto op = std::find_if(warp.ops.begin(), warp.ops.end(), shares);
  if (op == warp.ops.end())
    op = warp.ops.insert(op, {mask, 0, site, kind});
  if (op->mask != mask || op->site != site || op->kind != kind)
    launch->fail("is in " + launch->nameOfSite(site) + ", while threads of its warp wait for it in " +
                 launch->nameOfSite(op->site));
  op->arrived |= own;
  if (op->arrived != mask)
    return launch->block(State::AtWarp, site);
  warp.ops.erase(op);
  if (compute)
    compute(warp, mask, kind);
  for (uint32_t lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && lane != thread.lane())
      launch->wake(warp.threads[lane]);
}

namespace {
struct ShuffleOperands {
  uint32_t value, offset, clamp;
};
} // namespace

// As the PTX manual says: the clamp holds the last lane, and the bits of a lane that number its segment.
static uint32_t sourceLane(uint32_t lane, const ShuffleOperands &given, uint32_t kind) {
  uint32_t offset = given.offset & 31, segment = given.clamp >> 8 & 31;
  uint32_t last = (lane & segment) | (given.clamp & 31 & ~segment);
  uint32_t source = kind == 0   ? lane ^ offset
                    : kind == 1 ? lane - offset
                    : kind == 2 ? lane + offset
                                : (lane & segment) | (offset & ~segment);
  bool isValid = kind == 1 ? static_cast<int32_t>(source) >= static_cast<int32_t>(last) : source <= last;
  return isValid ? source : lane;
}

static void computeShuffle(Warp &warp, uint32_t mask, uint32_t kind) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    const auto &given = *static_cast<const ShuffleOperands *>(warp.threads[lane].operands);
    uint32_t source = sourceLane(lane, given, kind);
    if (!(mask >> source & 1))
      launch->fail("reads in " + launch->nameOfSite(launch->current->site) + " from a lane outside of the mask");
    *static_cast<uint32_t *>(warp.threads[lane].results) =
        static_cast<const ShuffleOperands *>(warp.threads[source].operands)->value;
  }
}

TK_EMU_EXPORT uint32_t tk_emu_shuffle(uint32_t mask, uint32_t value, uint32_t offset, uint32_t clamp, uint32_t kind,
                                      uint32_t site) {
  ShuffleOperands operands{value, offset, clamp};
  uint32_t result = 0;
  meet(mask, kind, site, &operands, &result, computeShuffle);
  return result;
}

// Lane 8 i + r has the address of row r of matrix i. The kind is the number of matrices, and 8 more where they are
// transposed.
static void computeLdMatrix(Warp &warp, uint32_t, uint32_t kind) {
  bool isTransposed = kind & 8;
  for (uint32_t matrix = 0; matrix < (kind & 7); ++matrix) {
    uint16_t elements[8][8];
    for (uint32_t row = 0; row < 8; ++row)
      std::memcpy(elements[row], warp.threads[8 * matrix + row].operands, 16);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      uint32_t outer = lane / 4, inner = lane % 4 * 2;
      uint32_t low = isTransposed ? elements[inner][outer] : elements[outer][inner];
      uint32_t high = isTransposed ? elements[inner + 1][outer] : elements[outer][inner + 1];
      static_cast<uint32_t *>(warp.threads[lane].results)[matrix] = low | high << 16;
    }
  }
}

TK_EMU_EXPORT void tk_emu_ldmatrix(const void *row, uint32_t count, uint32_t isTransposed, void *results,
                                   uint32_t site) {
  if (launch->current->lane() < 8 * count)
    launch->access(row, 16, 16, site, /*isWrite=*/false);
  meet(~0u, count | (isTransposed ? 8 : 0), site, row, results, computeLdMatrix);
}

static float fromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float fromBf16(uint32_t bits) { return fromBits(bits << 16); }

float fromF16(uint32_t bits) {
  uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
  float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                    : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                    : std::ldexp(static_cast<float>(fraction + 1024), static_cast<int>(exponent) - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// The tensor core reads what tf32 holds of a register.
static float fromTf32(uint32_t bits) { return fromBits(bits & 0xFFFFE000); }

// The sum of exact products and an addend as the least exact tensor core that is known makes it: what does not fit
// beside the largest of the terms, or into the sum, is cut off.
float sumOf(const double *terms, int count) {
  double largest = 0, plain = 0;
  for (int i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(terms[i]));
    plain += terms[i];
  }
  if (!std::isfinite(plain) || largest == 0)
    return static_cast<float>(plain);
  uint64_t bits;
  std::memcpy(&bits, &largest, sizeof bits);
  int exponent = std::max(static_cast<int>(bits >> 52) - 1023, -126) - 23;
  double unit = std::ldexp(1.0, exponent), inverse = std::ldexp(1.0, -exponent);
  int64_t total = 0;
  for (int i = 0; i < count; ++i)
    total += static_cast<int64_t>(terms[i] * inverse);
  uint64_t magnitude = total < 0 ? -static_cast<uint64_t>(total) : static_cast<uint64_t>(total);
  int excess = magnitude ? std::max(0, 64 - __builtin_clzll(magnitude) - 24) : 0;
  magnitude = magnitude >> excess << excess;
  double rounded = static_cast<double>(magnitude) * unit;
  return static_cast<float>(total < 0 ? -rounded : rounded);
}

namespace {
struct Fragments {
  double a[16][16], b[16][8];
  float c[16][8];
};
} // namespace

// The fragments of m16n8k16, of two elements in a register, and of m16n8k8, of one, as the PTX manual draws them.
static void gather(Warp &warp, uint32_t kind, Fragments &all) {
  float (*read)(uint32_t) = kind == 0 ? fromBf16 : kind == 1 ? fromF16 : fromTf32;
  int perRegister = kind == 2 ? 1 : 2, width = 4 * perRegister;
  for (int lane = 0; lane < 32; ++lane) {
    const auto *registers = static_cast<const uint32_t *>(warp.threads[lane].operands);
    int group = lane / 4, inner = lane % 4;
    for (int i = 0; i < 6; ++i)
      for (int element = 0; element < perRegister; ++element) {
        uint32_t bits = kind == 2 ? registers[i] : registers[i] >> (16 * element) & 0xFFFF;
        int along = inner * perRegister + element;
        if (i < 4)
          all.a[group + i % 2 * 8][along + i / 2 * width] = read(bits);
        else
          all.b[along + (i - 4) * width][group] = read(bits);
      }
    for (int i = 0; i < 4; ++i)
      all.c[group + i / 2 * 8][inner * 2 + i % 2] = fromBits(registers[6 + i]);
  }
}

// Kinds: 0 bf16, 1 f16, 2 tf32.
static void computeMma(Warp &warp, uint32_t, uint32_t kind) {
  Fragments all;
  gather(warp, kind, all);
  int depth = kind == 2 ? 8 : 16;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double terms[17];
      for (int k = 0; k < depth; ++k)
        terms[k] = all.a[row][k] * all.b[k][column];
      terms[depth] = all.c[row][column];
      static_cast<float *>(warp.threads[lane].results)[i] = sumOf(terms, depth + 1);
    }
}

TK_EMU_EXPORT void tk_emu_mma(uint32_t kind, const uint32_t *operands, void *results, uint32_t site) {
  meet(~0u, kind, site, operands, results, computeMma);
}

} // namespace trainkernel::emulator
