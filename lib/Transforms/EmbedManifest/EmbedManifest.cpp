//===- EmbedManifest.cpp - the manifest inside the compiled file ----------===//

#include "lib/Transforms/EmbedManifest/EmbedManifest.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKEMBEDMANIFEST
#include "lib/Transforms/EmbedManifest/EmbedManifest.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
struct EmbedManifestPass : public megakernel::impl::TkEmbedManifestBase<EmbedManifestPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto manifest = module->getAttrOfType<StringAttr>(MegakernelDialect::getManifestAttrName());
    if (!manifest)
      return;
    module->removeAttr(MegakernelDialect::getManifestAttrName());
    auto gpuModules = module.getOps<gpu::GPUModuleOp>();
    bool onGpu = !gpuModules.empty();
    Block *block = onGpu ? &(*gpuModules.begin()).getBodyRegion().front() : module.getBody();
    OpBuilder builder = OpBuilder::atBlockBegin(block);
    addBytes(builder, "trainkernel_digest", std::string(32, '\xff'), onGpu);
    addBytes(builder, "trainkernel_manifest", manifest.getValue().str() + '\0', onGpu);
  }

  static void addBytes(OpBuilder &builder, StringRef name, const std::string &bytes, bool onGpu) {
    auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), bytes.size());
    // Address space 1 is global memory on the GPU.
    LLVM::GlobalOp::create(builder, builder.getUnknownLoc(), type, /*isConstant=*/false, LLVM::Linkage::External, name,
                           builder.getStringAttr(bytes), /*alignment=*/1, /*addrSpace=*/onGpu ? 1 : 0);
  }
};
} // namespace
