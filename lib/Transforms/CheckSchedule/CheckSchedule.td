include "mlir/Pass/PassBase.td"

def TkCheckSchedule : Pass<"tk-check-schedule", "::mlir::megakernel::KernelOp"> {
  let summary = "prove a schedule free of races and deadlocks";
  let description = [{
    Proves, from the scheduled form alone, that

    * between any two accesses to the same bytes, of which one is a write, stands a barrier that joins the CTAs that
      make them, unless one op makes both and reads only the element that it writes; a barrier of scope cta orders
      what one CTA does, one of scope cluster what the CTAs of a cluster do; with donated state an output is the memory
      of the state;
    * every read of a buffer or an output comes after a write of all its bytes;
    * no state is read after a phase of the same step that may have replaced it;
    * no CTA waits for one that does not come: every CTA passes every barrier;
    * every buffer has a place and every commit is resolved;
    * no tile touches more of a buffer on chip than its CTA has, and nothing that is in use at the same time lies on each
      other in shared memory;
    * all of this also holds from one step of a launch to the next, where the kernel repeats: then a state is read that
      the step before must have written, and buffers and donated state are written again.

    Changes nothing. Fails with the numbers of the phases and the names of the buffers or arguments, at the lines of
    both. A schedule made by our own passes always passes; a schedule written or edited by hand gets told what is
    missing.
  }];
}
