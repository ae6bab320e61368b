# Helpers shared by the CMakeLists of dialects/, lib/ and tools/.

# One object library that carries the precompiled header; every other target reuses it.
function(tk_define_precompiled_header)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pch.cpp" CONTENT "// Only carries the precompiled header.\n")
  add_library(TKPrecompiledHeader OBJECT "${PROJECT_BINARY_DIR}/pch.cpp")
  # What takes long to read and is read by many; files include what they use all the same. No header of the project, so
  # that no edit compiles everything again; no path into the checkout, so that ccache serves other clones.
  target_precompile_headers(TKPrecompiledHeader PRIVATE
    <mlir/Dialect/Affine/IR/AffineOps.h>
    <mlir/Dialect/Arith/IR/Arith.h>
    <mlir/Dialect/Func/IR/FuncOps.h>
    <mlir/Dialect/GPU/IR/GPUDialect.h>
    <mlir/Dialect/Linalg/IR/Linalg.h>
    <mlir/Dialect/Math/IR/Math.h>
    <mlir/Dialect/MemRef/IR/MemRef.h>
    <mlir/Dialect/SCF/IR/SCF.h>
    <mlir/Dialect/Tensor/IR/Tensor.h>
    <mlir/Dialect/Vector/IR/VectorOps.h>
    <mlir/IR/Builders.h>
    <mlir/IR/BuiltinOps.h>
    <mlir/IR/DialectImplementation.h>
    <mlir/IR/OpImplementation.h>
    <mlir/Interfaces/FunctionImplementation.h>
    <mlir/Pass/Pass.h>
    <mlir/Pass/PassManager.h>
    <mlir/Transforms/DialectConversion.h>
    <mlir/Transforms/GreedyPatternRewriteDriver.h>
    <llvm/ADT/TypeSwitch.h>)
  llvm_update_compile_flags(TKPrecompiledHeader)
endfunction()

# tk_add_library(NAME sources... DEPENDS targets... LINK_LIBS libs...)
function(tk_add_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK_LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY TK_LIBRARIES ${name})
  llvm_update_compile_flags(${name})
  target_precompile_headers(${name} REUSE_FROM TKPrecompiledHeader)
  target_link_libraries(${name} PUBLIC ${ARG_LINK_LIBS})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# tk_add_pass(NAME LINK_LIBS libs...): a pass in the current folder, declared in NAME.td, defined in NAME.cpp and
# whatever further sources are given.
function(tk_add_pass name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK_LIBS" ${ARGN})
  set(LLVM_TARGET_DEFINITIONS ${name}.td)
  mlir_tablegen(${name}.h.inc -gen-pass-decls -name=${name})
  add_public_tablegen_target(TK${name}PassIncGen)
  set_property(GLOBAL APPEND PROPERTY TK_PASS_LIBS TK${name})
  set_property(GLOBAL APPEND PROPERTY TK_PASS_TDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}.td")
  tk_add_library(TK${name} ${name}.cpp ${ARG_SOURCES}
    DEPENDS TK${name}PassIncGen TKMegakernelIncGen
    LINK_LIBS TKMegakernelDialect MLIRPass ${ARG_LINK_LIBS})
endfunction()
