//===- TargetTable.cpp - facts about targets ------------------------------===//

#include "lib/Scheduling/TargetTable.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/MathExtras.h"

using namespace trainkernel;

// Times of sm_90a were measured on an H200: barriers between phases of a step, from the last CTA that arrives to the
// first that goes on, and as stragglers what a phase behind one takes longer than its tiles alone; launches as nodes of
// a CUDA graph; tile operands from L2 in coalesced loads, of which an SM gets 150 bytes per nanosecond, no less when
// all of them read, since they read the same rows. Those of sm_80 are scaled by the clock. Processors are those of the
// full part: 132 on H100 SXM and H200, 108 on A100. The CPU's workers are however many the runtime starts; 16 is what
// steps are cut for.
// Of an SM's shared memory the driver takes 1 KiB for a CTA, and a few bytes go to the symbol that stands for the rest.
static constexpr int64_t maxShared(int64_t kibibytes) { return (kibibytes - 1) * 1024 - 16; }

static const TargetFacts targets[] = {
    {"cpu", TargetKind::Cpu, 16,   32, 1 << 18, 1, 2.5e4, 2500, 0.05, 0.05, 1e-4, 1e-4, 0, 0, 0.5, 0.5, 0, 1,
     1,     false,           false},
    {"sm_80",
     TargetKind::Cuda,
     108,
     256,
     maxShared(164),
     1,
     0,
     1400,
     0.45,
     0.03,
     1e-5,
     1e-5,
     9e-8,
     0.02,
     1.1,
     1.1,
     0.6,
     0.8,
     1.2,
     false,
     false},
    {"sm_90a",
     TargetKind::Cuda,
     132,
     256,
     maxShared(228),
     16,
     0,
     1800,
     0.4,
     0.03,
     6.6e-6,
     5.7e-6,
     5e-8,
     0.015,
     0.5,
     0.75,
     0.5,
     0.67,
     0.9,
     true,
     true},
};

// Measured on an H200 for 16-bit operands. A tf32 product takes a matrix unit as long as one of twice the depth in 16
// bits, and there are three of them; their sums leave the unit, so that the next step waits for an addition alone, and
// two steps are on their way at once. Splitting is three instructions; a block issues its three products and four
// additions. These are counted, not measured.
std::optional<MatrixStep> trainkernel::findMatrixStep(Multiplier multiplier) {
  switch (multiplier) {
  case Multiplier::ThreadFma:
    return std::nullopt;
  case Multiplier::Narrow:
    return MatrixStep{16, 2, 18, 8, 0, 0};
  case Multiplier::Tf32x3:
    return MatrixStep{8, 4, 27, 24, 3, 7};
  }
  llvm_unreachable("no such multiplier");
}

MatrixBlock trainkernel::matrixBlockOf(int64_t rows) {
  return rows % 16 == 0 ? MatrixBlock{16, 8} : MatrixBlock{8, 16};
}

int64_t trainkernel::paddedRows(Multiplier multiplier, int64_t rows, int64_t columns) {
  if (!findMatrixStep(multiplier))
    return rows;
  bool isTurned = multiplier == Multiplier::Narrow && rows <= 8 && columns % 16 == 0;
  return llvm::alignTo(rows, isTurned ? 8 : 16);
}

std::optional<TargetFacts> trainkernel::findTarget(llvm::StringRef name) {
  for (const TargetFacts &target : targets)
    if (target.name == name)
      return target;
  return std::nullopt;
}

int64_t trainkernel::mostCtas(const TargetFacts &target) {
  constexpr int64_t threadsOfProcessor = 2048, maxWorkers = 1024;
  return target.kind == TargetKind::Cpu ? maxWorkers : target.processors * (threadsOfProcessor / target.threads);
}

std::string trainkernel::listTargets() {
  std::string names;
  for (const TargetFacts &target : targets)
    names += (names.empty() ? "" : ", ") + target.name.str();
  return names;
}
