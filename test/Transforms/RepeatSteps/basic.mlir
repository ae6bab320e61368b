// A kernel repeats behind a barrier that joins all of its CTAs; one that repeats already is left alone.
// RUN: sed 's/GRID/1/;s/CLUSTER/1/' %s | tk-opt --tk-repeat-steps --tk-repeat-steps | FileCheck %s -DSCOPE=cta
// RUN: sed 's/GRID/4/;s/CLUSTER/4/' %s | tk-opt --tk-repeat-steps | FileCheck %s -DSCOPE=cluster
// RUN: sed 's/GRID/4/;s/CLUSTER/2/' %s | tk-opt --tk-repeat-steps | FileCheck %s -DSCOPE=grid

// CHECK-LABEL: megakernel.kernel @step
// CHECK: megakernel.phase
// CHECK-NOT: megakernel.repeat
// CHECK: megakernel.repeat <[[SCOPE]]>
// CHECK-NEXT: megakernel.return
megakernel.kernel @step(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = GRID : i64, cluster = CLUSTER : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
