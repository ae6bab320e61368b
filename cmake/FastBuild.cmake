# What makes a rebuild quick when the machine has it: a compiler cache and a fast linker. Neither is required.
find_program(CCACHE_EXE ccache)
if(CCACHE_EXE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_EXE}")
  # The base folder lets one clone find what another compiled; time_macros and pch_defines are what ccache needs to
  # cache units that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${CCACHE_EXE}")
endif()

include(CheckLinkerFlag)
foreach(linker mold lld gold)
  check_linker_flag(CXX "-fuse-ld=${linker}" TK_HAVE_LINKER_${linker})
  if(TK_HAVE_LINKER_${linker})
    add_link_options("-fuse-ld=${linker}")
    message(STATUS "linker: ${linker}")
    break()
  endif()
endforeach()
# The static archives of MLIR and LLVM hold far more than the tools call.
add_link_options("-Wl,--gc-sections")
