// RUN: tk-opt %s --tk-require-form=form=step --split-input-file --verify-diagnostics
// RUN: not tk-opt %s --tk-require-form=form=loop 2>&1 | FileCheck %s --check-prefix=FORM
// Stages that are run on the wrong form say so: nothing of theirs would find an op to work on.
// RUN: not tk-opt %s --tk-fuse 2>&1 | FileCheck %s --check-prefix=STEP
// RUN: not tk-opt %s --tk-schedule 2>&1 | FileCheck %s --check-prefix=STEP
// RUN: not tk-opt %s --tk-lower-to-cuda 2>&1 | FileCheck %s --check-prefix=KERNEL
// RUN: not tk-opt %s --tk-lower-to-cpu 2>&1 | FileCheck %s --check-prefix=KERNEL
// RUN: not tk-opt %s --tk-schedule-phases 2>&1 | FileCheck %s --check-prefix=BARE

// BARE: holds no 'megakernel.step', expected 'tk-import' to have run
// FORM: form is 'loop', expected step or kernel
// STEP: holds 0 of 'megakernel.step', expected one: 'tk-import' to have run
// KERNEL: holds 0 of 'megakernel.kernel', expected one: 'tk-schedule' to have run
// expected-error @below {{holds 0 of 'megakernel.step', expected one: 'tk-import' to have run}}
module {
}
