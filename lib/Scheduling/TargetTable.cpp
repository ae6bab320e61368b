//===- TargetTable.cpp - facts about targets ------------------------------===//

#include "lib/Scheduling/TargetTable.h"

using namespace trainkernel;

// Times of sm_90a were measured on an H200: barriers, launches as nodes of a CUDA graph, and tile operands from L2.
// Those of sm_80 are scaled by the clock. Processors are those of the full part: 132 on H100 SXM and H200, 108 on A100.
// The CPU's workers are however many the runtime starts; 16 is what steps are cut for.
static const TargetFacts targets[] = {
    {"cpu", TargetKind::Cpu, 16, 32, 1 << 18, 1, 2.5e4, 2.5e4, 0, 0.05, 1e-4, 0.5, 0.5, 0.5, 1, 1},
    {"sm_80", TargetKind::Cuda, 108, 256, 163 * 1024, 1, 7e5, 8e4, 0.03, 0.45, 7e-6, 0.02, 1.3, 1.3, 0.8, 1.2},
    {"sm_90a", TargetKind::Cuda, 132, 256, 227 * 1024, 16, 1e6, 1.2e5, 0.02, 0.35, 5.7e-6, 0.015, 0.2, 0.93, 0.67, 0.9},
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
