include "mlir/Pass/PassBase.td"

def ConvertNVVMToEmulator : Pass<"convert-nvvm-to-emulator", "::mlir::ModuleOp"> {
  let summary = "turn a lowered GPU kernel into code for the emulator of lib/Emulator, for tests without a GPU";
  let description = [{
    Needs a module with one `gpu.module`, as `tk-lower-to-cuda` leaves it. Leaves an ordinary module in the LLVM dialect,
    which `tk-translate --tk-to-object` makes an object file of. What belongs to the GPU becomes calls of functions
    `tk_emu_*` of lib/Emulator:

    * ops that threads do together: barriers, shuffles, `ldmatrix`, `mma`, and our inline PTX, `wgmma` among it;
    * a check ahead of each load and store: bounds, alignment, races;
    * the GPU's approximations, and functions of its device library, which become those of the C library.

    Addresses are plain pointers: shared memory lies where the emulator says, and 32-bit addresses in it count from the
    start of the CTA's. Each kernel gets an entry point of its name, `void NAME(void **params)`, which loads the parameters
    from where the pointers point, as a driver does. `trainkernel_emulator_sites` holds one line for each place of the
    code that can be named in an error, by number; `trainkernel_emulator_granule` the bytes of the smallest access.

    Fails on an op, inline PTX, or function that the emulator does not know, naming it.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}
