// One program under three names.
// RUN: tk-opt --help | FileCheck %s --check-prefix=OPT
// RUN: tk-translate --help | FileCheck %s --check-prefix=TRANSLATE
// RUN: tk-lsp-server --help | FileCheck %s --check-prefix=LSP
// RUN: tk-opt --tool=tk-translate --help | FileCheck %s --check-prefix=NAMED
// RUN: tk-opt --tool=tk-opt %s | FileCheck %s --check-prefix=SAME
// RUN: not tk-opt --tool=tk-unknown %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: tk-opt --show-dialects | FileCheck %s --check-prefix=DIALECTS

// OPT: tk-opt: runs passes and pipelines over megakernel IR
// OPT: --tk-import
// OPT: --tk-fuse
// OPT: --tk-schedule
// OPT: --tk-lower-to-cuda
// OPT: --tk-lower-to-cpu
// OPT: USAGE: tk-opt [options]
// OPT-DAG: --convert-megakernel-to-gpu
// OPT-DAG: --tk-inline-pointwise
// TRANSLATE: tk-translate: writes the code of lowered IR
// TRANSLATE: USAGE: tk-translate [options]
// TRANSLATE-DAG: --tk-to-object
// TRANSLATE-DAG: --tk-to-ptx
// LSP: USAGE: tk-lsp-server [options]
// LSP: --lit-test
// NAMED: USAGE: tk-translate [options]
// SAME: module
// UNKNOWN: there is no tool 'tk-unknown', expected tk-opt, tk-translate or tk-lsp-server
// DIALECTS: megakernel
module {
}
