"""Checks an installation of the wheel: `python test/check_installed.py FOLDER` (pip's --target folder).

The folder comes before everything else, so that it is what is imported, and PyTorch and MLIR cannot be.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT_EDITABLE = 'sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]'
PROGRAM = """
import sys
for name in ("torch", "torch_mlir", "mlir"):
    sys.modules[name] = None
import trainkernel
from trainkernel.compiler.tools import find_tk_opt
from trainkernel.runtime.cpu import pool_library
from trainkernel.runtime.native import call_library
assert trainkernel.__file__.startswith(sys.argv[1]), trainkernel.__file__
assert find_tk_opt().startswith(sys.argv[1]), find_tk_opt()
assert pool_library()._name.startswith(sys.argv[1]), pool_library()._name
library = call_library()
assert library is not None and library._name.startswith(sys.argv[1]), library
trainkernel.load
"""
IR_PROGRAM = """
import sys
from trainkernel import ir
from trainkernel.ir import megakernel
assert megakernel.__file__.startswith(sys.argv[1]), megakernel.__file__
module = ir.Module.parse("module {}", ir.Context())
"""
FILES = (
    "bin/tk-opt",
    "runtime/libtrainkernel_cpu.so",
    "runtime/libtrainkernel_call.so",
    "ir/libtrainkernel_mlir.so",
    "ir/_megakernel_ops_gen.py",
)


def main(folder: Path) -> None:
    """Check the files of an installation, and that it starts."""
    missing = [name for name in FILES if not (folder / "trainkernel" / name).is_file()]
    if missing:
        sys.exit(f"the wheel lacks {', '.join(missing)}")
    for program in (PROGRAM, IR_PROGRAM):
        # The editable installation of the checkout finds its package before the path is asked.
        text = f"import sys; sys.path.insert(0, {str(folder)!r})\n{WITHOUT_EDITABLE}\n{program}"
        subprocess.run([sys.executable, "-P", "-c", text, str(folder)], check=True)
    tk_opt = folder / "trainkernel" / "bin" / "tk-opt"
    subprocess.run([tk_opt, "-"], input=b"module {}", stdout=subprocess.DEVNULL, check=True)
    print(f"installed: tk-opt {tk_opt.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
