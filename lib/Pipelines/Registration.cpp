//===- Registration.cpp - everything a tool must know ---------------------===//

#include "lib/Pipelines/Registration.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Conversion/CPUEntry/CPUEntry.h"
#include "lib/Conversion/MegakernelToCPU/MegakernelToCPU.h"
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h"
#include "lib/Conversion/NVVMToEmulator/NVVMToEmulator.h"
#include "lib/Pipelines/Pipelines.h"
#include "lib/Pipelines/Upstream.h"
#include "lib/Transforms/BindOperands/BindOperands.h"
#include "lib/Transforms/CheckSchedule/CheckSchedule.h"
#include "lib/Transforms/CommitState/CommitState.h"
#include "lib/Transforms/EmbedManifest/EmbedManifest.h"
#include "lib/Transforms/ExpandWindows/ExpandWindows.h"
#include "lib/Transforms/FetchAhead/FetchAhead.h"
#include "lib/Transforms/ImportLinalg/ImportLinalg.h"
#include "lib/Transforms/InlinePointwise/InlinePointwise.h"
#include "lib/Transforms/InsertBarriers/InsertBarriers.h"
#include "lib/Transforms/KeepOnChip/KeepOnChip.h"
#include "lib/Transforms/KeepOperands/KeepOperands.h"
#include "lib/Transforms/KeepRounding/KeepRounding.h"
#include "lib/Transforms/NormalizeNumerics/NormalizeNumerics.h"
#include "lib/Transforms/PlanBuffers/PlanBuffers.h"
#include "lib/Transforms/PredictTimes/PredictTimes.h"
#include "lib/Transforms/PrefetchInputs/PrefetchInputs.h"
#include "lib/Transforms/RepeatSteps/RepeatSteps.h"
#include "lib/Transforms/RequireForm/RequireForm.h"
#include "lib/Transforms/SchedulePhases/SchedulePhases.h"
#include "lib/Transforms/SplitReductions/SplitReductions.h"
#include "lib/Transforms/VerifyAutodiff/VerifyAutodiff.h"
#include "mlir/IR/DialectRegistry.h"

void mlir::megakernel::registerDialects(DialectRegistry &registry) {
  registerUpstreamDialects(registry);
  registry.insert<MegakernelDialect>();
}

void mlir::megakernel::registerPasses() {
  registerUpstreamPasses();
  registerOwnPasses();
}

void mlir::megakernel::registerOwnPasses() {
  registerEmbedManifestPasses();
  registerImportLinalgPasses();
  registerExpandWindowsPasses();
  registerNormalizeNumericsPasses();
  registerKeepRoundingPasses();
  registerVerifyAutodiffPasses();
  registerInlinePointwisePasses();
  registerSchedulePhasesPasses();
  registerSplitReductionsPasses();
  registerRequireFormPasses();
  registerCommitStatePasses();
  registerKeepOnChipPasses();
  registerKeepOperandsPasses();
  registerFetchAheadPasses();
  registerInsertBarriersPasses();
  registerPredictTimesPasses();
  registerPrefetchInputsPasses();
  registerPlanBuffersPasses();
  registerRepeatStepsPasses();
  registerBindOperandsPasses();
  registerCheckSchedulePasses();
  registerCPUEntryPasses();
  registerMegakernelToCPUPasses();
  registerMegakernelToGPUPasses();
  registerNVVMToEmulatorPasses();
  registerPipelines();
}
