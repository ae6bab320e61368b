# `docs`: docs/dialect.md and docs/passes.md from the descriptions in the .td files. Written in the build folder;
# `make docs` copies them, `make check` compares them.

function(tk_add_doc name title generator)
  cmake_parse_arguments(ARG "" "" "SOURCES;OPTIONS" ${ARGN})
  set(parts)
  foreach(source ${ARG_SOURCES})
    cmake_path(GET source STEM stem)
    set(LLVM_TARGET_DEFINITIONS "${source}")
    cmake_path(GET source PARENT_PATH folder)
    mlir_tablegen(docs/parts/${stem}.md ${generator} ${ARG_OPTIONS} EXTRA_INCLUDES "${folder}")
    list(APPEND parts "${CMAKE_CURRENT_BINARY_DIR}/docs/parts/${stem}.md")
  endforeach()
  add_custom_command(
    OUTPUT "${PROJECT_BINARY_DIR}/docs/${name}.md"
    COMMAND "${CMAKE_COMMAND}" "-DTITLE=${title}" "-DPARTS=${parts}" "-DOUTPUT=${PROJECT_BINARY_DIR}/docs/${name}.md"
            -P "${PROJECT_SOURCE_DIR}/cmake/JoinDocs.cmake"
    DEPENDS ${parts} "${PROJECT_SOURCE_DIR}/cmake/JoinDocs.cmake"
    VERBATIM)
  set_property(GLOBAL APPEND PROPERTY TK_DOCS "${PROJECT_BINARY_DIR}/docs/${name}.md")
endfunction()

get_property(pass_tds GLOBAL PROPERTY TK_PASS_TDS)
tk_add_doc(passes "Passes" -gen-pass-doc SOURCES ${pass_tds})
tk_add_doc(dialect "The megakernel dialect" -gen-dialect-doc
  SOURCES "${PROJECT_SOURCE_DIR}/dialects/Megakernel/MegakernelOps.td" OPTIONS -dialect=megakernel)
get_property(docs GLOBAL PROPERTY TK_DOCS)
add_custom_target(docs DEPENDS ${docs})
