//===- Parts.h - buffers dealt out over CTAs --------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_PARTS_H
#define TRAINKERNEL_LIB_SCHEDULING_PARTS_H

#include "lib/Scheduling/Placement.h"

#include <optional>

namespace trainkernel {

/// A buffer in `count` parts of `elements` that follow each other in row-major order. Part p lies with CTA
/// (firstCta + p) mod grid.
struct Parts {
  int64_t elements = 0, count = 0, firstCta = 0;
};

/// The parts that the tiles of `write` are, where each is one run of elements and has a CTA of its own.
std::optional<Parts> partsWritten(const Footprint &write, int64_t grid);

/// The parts that tiles with the placement of `touched` need of a buffer, where rows of it fall to each of them.
std::optional<Parts> partsByRow(const Footprint &touched, int64_t grid);

/// True where no tile of `touched` touches another part than that of its CTA.
bool staysInParts(const Footprint &touched, const Parts &parts, int64_t grid);

} // namespace trainkernel

#endif
