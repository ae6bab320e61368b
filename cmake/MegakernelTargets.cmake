# Helpers shared by the CMakeLists of dialects/, lib/ and tools/.

# One object library that carries the precompiled header; every other target reuses it.
function(tk_define_precompiled_header)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pch.cpp" CONTENT "// Only carries the precompiled header.\n")
  add_library(TKPrecompiledHeader OBJECT "${PROJECT_BINARY_DIR}/pch.cpp")
  target_precompile_headers(TKPrecompiledHeader PRIVATE "${PROJECT_SOURCE_DIR}/cmake/PrecompiledHeader.h")
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
