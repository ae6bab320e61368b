// A kernel repeats behind a barrier of the least scope that orders a step with the next; one that repeats already, or is
// for launches of one step, is left alone.
// RUN: sed 's/GRID/1/;s/CLUSTER/1/;s/FIRST/1/' %s | tk-opt --tk-repeat-steps --tk-repeat-steps | FileCheck %s -DSCOPE=cta
// RUN: sed 's/GRID/4/;s/CLUSTER/4/;s/FIRST/1/' %s | tk-opt --tk-repeat-steps | FileCheck %s -DSCOPE=cluster
// RUN: sed 's/GRID/4/;s/CLUSTER/2/;s/FIRST/2/' %s | tk-opt --tk-repeat-steps | FileCheck %s -DSCOPE=grid
// RUN: sed 's/GRID/4/;s/CLUSTER/2/;s/FIRST/1/' %s | tk-opt --tk-repeat-steps | FileCheck %s -DSCOPE=grid
// RUN: sed 's/GRID/4/;s/CLUSTER/4/;s/FIRST/0/' %s | tk-opt --tk-repeat-steps | FileCheck %s -DSCOPE=cta
// RUN: sed 's/GRID/4/;s/CLUSTER/1/;s/FIRST/0/;s/threads/step_count = #megakernel.step_count<one>, threads/' %s \
// RUN:   | tk-opt --tk-repeat-steps | FileCheck %s --check-prefix=ONE

// The next step reads of the state what the CTA wrote itself, or what one FIRST further on wrote.
// CHECK-LABEL: megakernel.kernel @step
// CHECK: megakernel.phase
// CHECK-NOT: megakernel.repeat
// CHECK: megakernel.repeat <[[SCOPE]]>
// CHECK-NEXT: megakernel.return
// ONE-NOT: megakernel.repeat
megakernel.kernel @step(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = GRID : i64, cluster = CLUSTER : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%y : memref<4xf32>) sizes [1] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %y : memref<4xf32>) outs(%n : memref<4xf32>) sizes [1] first_cta FIRST {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
