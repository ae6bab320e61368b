# MLIR's exported libraries name the shared libLLVM. The tools are linked against LLVM's static libraries instead: they
# then run without the development packages, start sooner, and hold one copy of LLVM's option registry, not two.
set(tk_llvm_components
    AsmParser BitReader BitWriter CodeGen Core DebugInfoDWARF FrontendOffloading FrontendOpenMP IPO IRReader Linker MC
    Option Passes Support SupportLSP Target TargetParser
    # What code is generated for: this machine's processor and NVIDIA's GPUs.
    ${LLVM_NATIVE_ARCH} NVPTX)
llvm_map_components_to_libnames(tk_llvm_libs ${tk_llvm_components})
add_library(TKStaticLLVM INTERFACE)
target_link_libraries(TKStaticLLVM INTERFACE ${tk_llvm_libs})

foreach(target ${MLIR_EXPORTED_TARGETS})
  if(NOT TARGET ${target})
    continue()
  endif()
  get_target_property(libs ${target} INTERFACE_LINK_LIBRARIES)
  if(libs)
    list(TRANSFORM libs REPLACE "^LLVM$" "TKStaticLLVM")
    list(TRANSFORM libs REPLACE "^\\$<LINK_ONLY:LLVM>$" "TKStaticLLVM")
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${libs}")
  endif()
endforeach()
