include "mlir/Pass/PassBase.td"

def TkEmbedManifest : Pass<"tk-embed-manifest", "::mlir::ModuleOp"> {
  let summary = "put the manifest into the compiled file";
  let description = [{
    Needs a lowered module that has the attribute `megakernel.manifest` (JSON text). Leaves two globals beside the
    kernel, in the GPU module where there is one: `trainkernel_manifest`, the text with a terminating NUL, and
    `trainkernel_digest`, 32 bytes that whoever finishes the file replaces by its SHA-256. The digest starts as
    non-zero bytes, because zeroes need not be stored in a file.

    Never fails; without the attribute nothing is added.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}
