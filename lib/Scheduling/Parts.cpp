//===- Parts.cpp - buffers dealt out over CTAs ----------------------------===//

#include "lib/Scheduling/Parts.h"

using namespace trainkernel;

static int64_t elementsIn(llvm::ArrayRef<int64_t> shape) {
  int64_t elements = 1;
  for (int64_t extent : shape)
    elements *= extent;
  return elements;
}

// The first and the last element of a box in row-major order.
static Interval rangeOf(const Box &box, llvm::ArrayRef<int64_t> shape) {
  Interval range;
  for (auto [interval, extent] : llvm::zip_equal(box, shape)) {
    range.first = range.first * extent + interval.first;
    range.last = range.last * extent + interval.last;
  }
  return range;
}

// Parts of one size, a CTA for each, or nothing.
static std::optional<Parts> dealOut(int64_t elements, int64_t count, int64_t firstCta, int64_t grid) {
  if (count == 0 || count > grid || elements % count != 0)
    return std::nullopt;
  return Parts{elements / count, count, firstCta % grid};
}

std::optional<Parts> trainkernel::partsWritten(const Footprint &write, int64_t grid) {
  // One CTA has all there is, in however many tiles.
  if (grid == 1)
    return dealOut(elementsIn(write.shape), 1, 0, grid);
  std::optional<Parts> parts = dealOut(elementsIn(write.shape), write.numTiles, write.firstCta, grid);
  return parts && staysInParts(write, *parts, grid) ? parts : std::nullopt;
}

std::optional<Parts> trainkernel::partsByRow(const Footprint &touched, int64_t grid) {
  if (touched.shape.empty() || touched.shape.front() % touched.numTiles != 0)
    return std::nullopt;
  std::optional<Parts> parts = dealOut(elementsIn(touched.shape), touched.numTiles, touched.firstCta, grid);
  return parts && staysInParts(touched, *parts, grid) ? parts : std::nullopt;
}

bool trainkernel::staysInParts(const Footprint &touched, const Parts &parts, int64_t grid) {
  for (int64_t tile = 0; tile < touched.numTiles; ++tile) {
    int64_t part = (touched.firstCta + tile + grid - parts.firstCta) % grid;
    for (const Box &box : touched.boxesOf(tile)) {
      Interval range = rangeOf(box, touched.shape);
      if (part >= parts.count || range.first / parts.elements != part || range.last / parts.elements != part)
        return false;
    }
  }
  return true;
}
