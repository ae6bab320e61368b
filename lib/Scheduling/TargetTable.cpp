//===- TargetTable.cpp - facts about targets ------------------------------===//

#include "lib/Scheduling/TargetTable.h"

using namespace trainkernel;

// Latency and time per byte of sm_90a were measured on an H200 (tile operands from L2); sm_80 is scaled by clocks.
// Processors are those of the smallest full-size part: H100 PCIe has 114, H100 SXM and H200 have 132, A100 has 108.
static const TargetFacts targets[] = {
    {"cpu", TargetKind::Cpu, 16, 32, 1 << 18, 1, 2.5e4, 2.5e4, 0.05, 1e-4},
    {"sm_80", TargetKind::Cuda, 108, 256, 163 * 1024, 1, 7e5, 1e5, 0.45, 7e-6},
    {"sm_90a", TargetKind::Cuda, 132, 256, 227 * 1024, 16, 1e6, 2e5, 0.35, 5.7e-6},
};

std::optional<TargetFacts> trainkernel::findTarget(llvm::StringRef name) {
  for (const TargetFacts &target : targets)
    if (target.name == name)
      return target;
  return std::nullopt;
}

std::string trainkernel::listTargets() {
  std::string names;
  for (const TargetFacts &target : targets)
    names += (names.empty() ? "" : ", ") + target.name.str();
  return names;
}
