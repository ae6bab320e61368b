//===- Warpgroups.cpp - products that warps start and wait for (wgmma) ----===//
//
// A product happens at any moment between its start and the wait for it. Until then its accumulators hold NaNs that
// stand for the results, and the next product may add to them. What is multiplied is found by the matrix descriptors as
// the PTX manual defines them, "Asynchronous Warpgroup Level Matrix Instructions".
//
//===----------------------------------------------------------------------===//

#include "lib/Emulator/Emulator.h"

#include <algorithm>
#include <cstring>

namespace trainkernel::emulator {

namespace {
constexpr int depth = 16, rowsOfWarp = 16, warps = 4;

/// What an operand's descriptor says.
struct Operand {
  Operand(uint64_t descriptor, bool isAcross)
      : start((descriptor & 0x3FFF) << 4), leading((descriptor >> 16 & 0x3FFF) << 4),
        stride((descriptor >> 32 & 0x3FFF) << 4), isAcross(isAcross) {
    constexpr uint64_t widths[] = {0, 128, 64, 32};
    width = widths[descriptor >> 62];
    if (!width || (descriptor >> 49 & 7))
      launch->fail("multiplies an operand that is not swizzled, or from the middle of a pattern, which the emulator "
                   "does not know");
  }

  /// The byte of shared memory where element k of row or column `outer` lies.
  uint64_t byteOf(uint64_t outer, uint64_t k) const {
    uint64_t perPanel = width / 2;
    uint64_t byte = isAcross ? outer / perPanel * leading + k / 8 * stride + k % 8 * width + outer % perPanel * 2
                             : outer / 8 * stride + outer % 8 * width + k * 2;
    byte += start;
    return byte ^ (byte >> 3 & (width - 16));
  }

  uint64_t start, leading, stride, width;
  bool isAcross;
};

/// Of a thread: its accumulators, and what is the same for all threads of the warp.
struct Request {
  uint32_t *registers;
  uint32_t columns, kind;
  uint64_t a, b;
};
} // namespace

// NaNs that say which result they stand for.
static constexpr uint32_t standIn = 0xFFC00001, mostResults = 1 << 16;

static uint32_t resolved(const Warp &warp, uint32_t lane, uint32_t bits) {
  const std::vector<uint32_t> &results = warp.results[lane];
  return bits >= standIn && bits - standIn < results.size() ? results[bits - standIn] : bits;
}

// All that a warp reads of both operands.
template <typename Visit> static void visitOperands(const Warp &warp, const Product &product, Visit visit) {
  Operand a(product.a, product.kind & 2), b(product.b, product.kind & 4);
  uint64_t firstRow = warp.index % warps * rowsOfWarp;
  for (int k = 0; k < depth; ++k) {
    for (int row = 0; row < rowsOfWarp; ++row)
      visit(a.byteOf(firstRow + row, k), 0, row, k);
    for (uint32_t column = 0; column < product.columns; ++column)
      visit(b.byteOf(column, k), 1, column, k);
  }
}

static void checkReads(const Warp &warp, const Product &product) {
  std::vector<uint64_t> places;
  visitOperands(warp, product, [&](uint64_t byte, int, int, int) { places.push_back(byte / 16 * 16); });
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  for (uint64_t place : places) {
    launch->access(warp.cta->shared + place, 16, 16, product.site, /*isWrite=*/false);
    launch->checkPublished(warp.cta->shared + place, 16, product.site);
  }
}

static void multiply(Warp &warp, Product &product) {
  float (*read)(uint32_t) = product.kind & 1 ? fromF16 : fromBf16;
  std::vector<double> elements[2];
  elements[0].resize(rowsOfWarp * depth);
  elements[1].resize(product.columns * depth);
  visitOperands(warp, product, [&](uint64_t byte, int operand, int outer, int k) {
    uint16_t bits;
    std::memcpy(&bits, warp.cta->shared + byte, sizeof bits);
    elements[operand][outer * depth + k] = read(bits);
  });
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t i = 0; i < product.columns / 2; ++i) {
      // As the PTX manual draws the accumulators.
      int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      double terms[depth + 1];
      for (int k = 0; k < depth; ++k)
        terms[k] = elements[0][row * depth + k] * elements[1][column * depth + k];
      uint32_t addend = resolved(warp, lane, product.addends[lane * product.columns / 2 + i]);
      float value;
      std::memcpy(&value, &addend, sizeof value);
      terms[depth] = value;
      value = sumOf(terms, depth + 1);
      std::memcpy(&warp.results[lane][product.first + i], &value, sizeof value);
    }
  product.isDone = true;
}

static void multiplyAll(Warp &warp) {
  for (Product &product : warp.products)
    if (!product.isDone)
      multiply(warp, product);
}

static void startProduct(Warp &warp, uint32_t, uint32_t kind) {
  const auto &first = *static_cast<const Request *>(warp.threads[0].operands);
  Product product;
  product.a = first.a;
  product.b = first.b;
  product.columns = first.columns;
  product.kind = kind;
  product.site = launch->current->site;
  product.first = static_cast<uint32_t>(warp.results[0].size());
  uint32_t count = first.columns / 2;
  if (product.first + count > mostResults)
    launch->fail("has more products under way than the emulator knows");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const auto &given = *static_cast<const Request *>(warp.threads[lane].operands);
    if (given.a != first.a || given.b != first.b)
      launch->fail("has in " + launch->nameOfSite(product.site) + " other descriptors than threads of its warp");
    for (uint32_t i = 0; i < count; ++i) {
      product.addends.push_back(given.registers[i]);
      given.registers[i] = standIn + product.first + i;
    }
    warp.results[lane].resize(product.first + count, 0xFFFFFFFF);
  }
  checkReads(warp, product);
  warp.products.push_back(std::move(product));
  if (launch->random(2) == 0)
    multiplyAll(warp);
}

static void finishProducts(Warp &warp, uint32_t, uint32_t) {
  multiplyAll(warp);
  for (const Product &product : warp.products) {
    if (!product.isCommitted)
      launch->fail("waits in " + launch->nameOfSite(launch->current->site) + " while the " +
                   launch->nameOfSite(product.site) + " is in no group");
    // As late as now it may have read.
    checkReads(warp, product);
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const auto &given = *static_cast<const Request *>(warp.threads[lane].operands);
    for (uint32_t i = 0; i < given.columns; ++i)
      given.registers[i] = resolved(warp, lane, given.registers[i]);
  }
  for (std::vector<uint32_t> &results : warp.results)
    results.clear();
  warp.products.clear();
  warp.isFenced = false;
}

static void fence(Warp &warp, uint32_t, uint32_t) { warp.isFenced = true; }

static void commit(Warp &warp, uint32_t, uint32_t) {
  for (Product &product : warp.products)
    product.isCommitted = true;
}

/// Kinds: 1 for f16 instead of bf16; 2 and 4 where a and b are contiguous along m and n.
TK_EMU_EXPORT void tk_emu_warpgroup_product(uint32_t *registers, uint32_t columns, uint32_t kind, uint64_t a,
                                            uint64_t b, uint32_t site) {
  Thread &thread = *launch->current;
  if (thread.cta->threads.size() % (32 * warps))
    launch->fail("is in " + launch->nameOfSite(site) + ", in a CTA that has not four warps for each product");
  if (!thread.warp->isFenced)
    launch->fail("is in " + launch->nameOfSite(site) + ", with no fence of its accumulators before");
  Request request{registers, columns, kind, a, b};
  meet(~0u, kind, site, &request, nullptr, startProduct);
}

TK_EMU_EXPORT void tk_emu_warpgroup_fence(uint32_t site) { meet(~0u, 0, site, nullptr, nullptr, fence); }

TK_EMU_EXPORT void tk_emu_warpgroup_commit(uint32_t site) { meet(~0u, 0, site, nullptr, nullptr, commit); }

TK_EMU_EXPORT void tk_emu_warpgroup_wait(uint32_t *registers, uint32_t count, uint32_t site) {
  Request request{registers, count, 0, 0, 0};
  meet(~0u, 0, site, &request, nullptr, finishProducts);
}

TK_EMU_EXPORT void tk_emu_fence_proxy() { launch->current->unpublishedEpoch = 0; }

} // namespace trainkernel::emulator
