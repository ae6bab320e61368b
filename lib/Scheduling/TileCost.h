//===- TileCost.h - what a predicted time consists of -----------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_TILECOST_H
#define TRAINKERNEL_LIB_SCHEDULING_TILECOST_H

namespace trainkernel {

/// Predicted time of one CTA for a tile, or for all of its tiles of a phase, in microseconds. What planner and report
/// say of a time is always the sum of these parts.
struct TileCost {
  /// Round trips to memory that nothing hides.
  double latency = 0;
  /// The bytes of what is read ahead of the arithmetic.
  double operands = 0;
  /// Multiply-adds, and the meetings of the threads between chunks of them.
  double multiply = 0;
  /// The arithmetic of the results, and the bytes that it reads and writes.
  double epilogue = 0;

  double total() const { return latency + operands + multiply + epilogue; }
  TileCost times(double count) const { return {latency * count, operands * count, multiply * count, epilogue * count}; }
  TileCost &operator+=(const TileCost &other) {
    latency += other.latency;
    operands += other.operands;
    multiply += other.multiply;
    epilogue += other.epilogue;
    return *this;
  }
};

} // namespace trainkernel

#endif
