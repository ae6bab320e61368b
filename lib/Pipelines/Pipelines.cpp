//===- Pipelines.cpp - the stages as named pipelines ----------------------===//
//
// The one place where passes are ordered. Each order has its reason beside it.
//
//===----------------------------------------------------------------------===//

#include "lib/Pipelines/Pipelines.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Conversion/CPUEntry/CPUEntry.h"
#include "lib/Conversion/MegakernelToCPU/MegakernelToCPU.h"
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h"
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
#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
struct ImportOptions : PassPipelineOptions<ImportOptions> {
  PassOptions::Option<std::string> fp32{
      *this, "fp32", llvm::cl::desc("how float32 products are computed: ieee or tf32x3"), llvm::cl::init("ieee")};
};
} // namespace

static void buildImport(OpPassManager &pm, const ImportOptions &options) {
  TkImportLinalgOptions linalg;
  linalg.fp32 = options.fp32;
  pm.addPass(createTkImportLinalg(linalg));
  // One kind of op from here on, so that no later pass needs a case for a named one.
  pm.addPass(createLinalgGeneralizeNamedOpsPass());
  // A convolution is a matrix product from here on, whose operands later passes know.
  pm.addNestedPass<StepOp>(createTkExpandWindows());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  // Accumulators are widened while sums still show their narrow type; only then is narrow arithmetic made explicit.
  pm.addPass(createTkNormalizeNumerics());
  arith::ArithEmulateUnsupportedFloatsOptions emulate;
  emulate.sourceTypeStrs = {"bf16", "f16"};
  emulate.targetTypeStr = "f32";
  pm.addPass(arith::createArithEmulateUnsupportedFloats(emulate));
  pm.addPass(math::createMathExtendToSupportedTypes());
  // Within one PyTorch op all is computed in float32 and rounded once: the conversions between fold here, while each
  // body is still one op's.
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createTkKeepRounding());
  // Unit dimensions would keep a bias gradient's sum from meeting its update.
  pm.addPass(createLinalgFoldUnitExtentDimsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

// Passes of one op pass by a module that has none: a stage says first what it needs.
static void require(OpPassManager &pm, StringRef form, StringRef target = "*") {
  TkRequireFormOptions options;
  options.form = form.str();
  options.target = target.str();
  pm.addPass(createTkRequireForm(options));
}

static void buildFuse(OpPassManager &pm) {
  require(pm, "step");
  // Structure is checked on the graph as the user wrote it, before ops move into fused regions.
  pm.addNestedPass<StepOp>(createTkVerifyAutodiff());
  // Before grouping, so that each stage finds its own group.
  pm.addNestedPass<StepOp>(createTkSplitReductions());
  pm.addNestedPass<StepOp>(createTkInlinePointwise());
  pm.addPass(createCanonicalizerPass());
}

namespace {
struct ScheduleOptions : PassPipelineOptions<ScheduleOptions> {
  PassOptions::Option<std::string> target{*this, "target", llvm::cl::desc("what to schedule for: cpu, sm_80 or sm_90a"),
                                          llvm::cl::init("sm_90a")};
  PassOptions::Option<int64_t> grid{*this, "grid", llvm::cl::desc("CTAs of the kernel; 0 lets the planner choose"),
                                    llvm::cl::init(0)};
  PassOptions::Option<std::string> plan{
      *this, "plan", llvm::cl::desc("overrides of the planner: grid=N, cluster=N, tile[PHASE.OP]=SIZES"),
      llvm::cl::init("")};
  PassOptions::Option<bool> oneKernel{*this, "one-kernel",
                                      llvm::cl::desc("one schedule for launches of one step and of several"),
                                      llvm::cl::init(false)};
};
} // namespace

static void buildSchedule(OpPassManager &pm, const ScheduleOptions &options) {
  require(pm, "step");
  TkSchedulePhasesOptions schedule;
  schedule.target = options.target;
  schedule.grid = options.grid;
  schedule.plan = options.plan;
  schedule.oneKernel = options.oneKernel;
  pm.addPass(createTkSchedulePhases(schedule));
  // Commits first: a direct commit needs no buffer, a staged one adds accesses that barriers must order.
  pm.addNestedPass<KernelOp>(createTkCommitState());
  // What a kept operand is computed from must be an input that nothing has overwritten: commits are known by now.
  pm.addNestedPass<KernelOp>(createTkKeepOperands());
  // Barriers before buffers: memory is reused only across a barrier.
  pm.addNestedPass<KernelOp>(createTkInsertBarriers());
  // What is kept on chip needs no place in the arena. What comes from afar in time is there as soon as what is kept, so
  // that long lives come last.
  TkKeepOnChipOptions nearby;
  nearby.maxDistance = 2;
  pm.addNestedPass<KernelOp>(createTkKeepOnChip(nearby));
  pm.addNestedPass<KernelOp>(createTkFetchAhead());
  pm.addNestedPass<KernelOp>(createTkKeepOnChip());
  pm.addNestedPass<KernelOp>(createTkBindOperands());
  // Before buffers: what they share memory with must not make the steps of a launch wait for one another. Before inputs
  // are prefetched: the first phase's can be while the step before ends.
  pm.addNestedPass<KernelOp>(createTkRepeatSteps());
  pm.addNestedPass<KernelOp>(createTkPlanBuffers());
  // After buffers: an input may share its memory with what is written just before.
  pm.addNestedPass<KernelOp>(createTkPrefetchInputs());
  pm.addNestedPass<KernelOp>(createTkCheckSchedule());
  // Last: it sums up what all others left.
  pm.addNestedPass<KernelOp>(createTkPredictTimes());
}

namespace {
struct CudaOptions : PassPipelineOptions<CudaOptions> {
  PassOptions::Option<std::string> arch{*this, "arch", llvm::cl::desc("GPU architecture: sm_80 or sm_90a"),
                                        llvm::cl::init("sm_90a")};
  PassOptions::Option<bool> profile{*this, "profile", llvm::cl::desc("record when phases and barriers end"),
                                    llvm::cl::init(false)};
  PassOptions::Option<int64_t> separatePhases{
      *this, "separate-phases", llvm::cl::desc("phases up to which launches of one step have a function of their own"),
      llvm::cl::init(12)};
  PassOptions::Option<int64_t> hoistOps{
      *this, "hoist-ops",
      llvm::cl::desc("tile ops up to which such a kernel computes indices ahead of the loop over steps"),
      llvm::cl::init(4)};
};
} // namespace

static void buildLowerToCuda(OpPassManager &pm, const CudaOptions &options) {
  require(pm, "kernel", options.arch);
  ConvertMegakernelToGPUOptions toGPU;
  toGPU.profile = options.profile;
  toGPU.separatePhases = options.separatePhases;
  toGPU.hoistOps = options.hoistOps;
  pm.addPass(createConvertMegakernelToGPU(toGPU));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createLoopInvariantCodeMotionPass());
  pm.addPass(createSCFToControlFlowPass());
  // Views of the workspace and of shared memory become address arithmetic before memory ops are lowered.
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  ConvertGpuOpsToNVVMOpsOptions toNVVM;
  toNVVM.useBarePtrCallConv = true;
  pm.addNestedPass<gpu::GPUModuleOp>(createConvertGpuOpsToNVVMOps(toNVVM));
  pm.addNestedPass<gpu::GPUModuleOp>(createConvertVectorToLLVMPass());
  pm.addNestedPass<gpu::GPUModuleOp>(createConvertNVVMToLLVMPass());
  pm.addNestedPass<gpu::GPUModuleOp>(createCanonicalizerPass());
  pm.addNestedPass<gpu::GPUModuleOp>(createCSEPass());
  pm.addNestedPass<gpu::GPUModuleOp>(createReconcileUnrealizedCastsPass());
  pm.addPass(createTkEmbedManifest());
  GpuNVVMAttachTargetOptions target;
  target.chip = options.arch;
  target.features = "+ptx86";
  target.optLevel = 3;
  pm.addPass(createGpuNVVMAttachTarget(target));
}

namespace {
struct CpuOptions : PassPipelineOptions<CpuOptions> {
  PassOptions::Option<int64_t> vectorBits{
      *this, "vector-bits", llvm::cl::desc("width of a vector register in bits: 256 or 512"), llvm::cl::init(512)};
};
} // namespace

static void buildLowerToCpu(OpPassManager &pm, const CpuOptions &options) {
  require(pm, "kernel", "cpu");
  ConvertMegakernelToCPUOptions toCpu;
  toCpu.vectorBits = options.vectorBits;
  pm.addPass(createConvertMegakernelToCPU(toCpu));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createLoopInvariantCodeMotionPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createConvertMathToLLVMPass());
  // What LLVM has no intrinsic for is a call into the C library's math functions, lane by lane: before vectors are
  // lowered.
  pm.addPass(createConvertMathToLibmPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  ConvertFuncToLLVMPassOptions toLLVM;
  toLLVM.useBarePtrCallConv = true;
  pm.addPass(createConvertFuncToLLVMPass(toLLVM));
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createTkEmitCPUEntry());
  pm.addPass(createTkEmbedManifest());
}

void mlir::megakernel::registerPipelines() {
  PassPipelineRegistration<ImportOptions>(
      "tk-import", "stage import: an annotated linalg function becomes a megakernel.step", buildImport);
  PassPipelineRegistration<>("tk-fuse", "stage fuse: ops that are computed together become megakernel.fused",
                             buildFuse);
  PassPipelineRegistration<ScheduleOptions>(
      "tk-schedule", "stage schedule: a fused step becomes a megakernel.kernel, placed, ordered and checked",
      buildSchedule);
  PassPipelineRegistration<CudaOptions>("tk-lower-to-cuda", "stage lower: a kernel becomes a GPU module in NVVM",
                                        buildLowerToCuda);
  PassPipelineRegistration<CpuOptions>("tk-lower-to-cpu", "stage lower: a kernel becomes a function in LLVM",
                                       buildLowerToCpu);
}
