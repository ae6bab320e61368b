// Where launches can overlap, a kernel waits for the earlier ones before it touches memory, then lets the next one start.
// RUN: sed s/TARGET/sm_90a/ %s | tk-opt --convert-megakernel-to-gpu | FileCheck %s
// RUN: sed s/TARGET/sm_80/ %s | tk-opt --convert-megakernel-to-gpu | FileCheck %s --check-prefix=SM80

// CHECK: megakernel.manifest = "{{.*}}overlaps_launches\22:true
// CHECK: gpu.func @step
// CHECK-NOT: memref.load
// CHECK: llvm.inline_asm {{.*}}"griddepcontrol.wait;", "~{memory}"
// CHECK-NEXT: llvm.inline_asm {{.*}}"griddepcontrol.launch_dependents;", "~{memory}"
// CHECK: memref.load
// SM80: megakernel.manifest = "{{.*}}overlaps_launches\22:false
// SM80-NOT: griddepcontrol
module attributes {megakernel.manifest = "{}"} {
  megakernel.kernel @step(%x: memref<1xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<1xf32> {megakernel.role = #megakernel.role<output>})
      attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "TARGET", arena_bytes = 0 : i64,
                  shared_bytes = 0 : i64} {
    megakernel.phase {
      megakernel.tile ins(%a = %x : memref<1xf32>) outs(%y : memref<1xf32>) sizes [1] {
        megakernel.yield %a : tensor<1xf32>
      }
    }
    megakernel.return
  }
}
