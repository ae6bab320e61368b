//===- Copies.cpp - asynchronous copies -----------------------------------===//
//
// A copy happens at any moment between its start and the wait for it. Until then nobody may touch where it writes.
//
//===----------------------------------------------------------------------===//

#include "lib/Emulator/Emulator.h"

#include <algorithm>
#include <cstring>

namespace trainkernel::emulator {

static void make(Copy &copy) {
  std::memcpy(copy.target, copy.source, copy.bytes);
  copy.isDone = true;
}

void Launch::makeCopies(Thread &thread, bool all) {
  for (Copy &copy : thread.copies)
    if (!copy.isDone && (all || random(8) == 0))
      make(copy);
}

TK_EMU_EXPORT void tk_emu_copy_async(void *target, const void *source, uint32_t bytes, uint32_t site) {
  launch->access(source, bytes, bytes, site, /*isWrite=*/false);
  launch->access(target, bytes, bytes, site, /*isWrite=*/true);
  Copy copy{static_cast<char *>(target), static_cast<const char *>(source), bytes, site, false};
  // What is read too early is a NaN.
  std::memset(target, 0xFF, bytes);
  launch->markUnderWay(copy, true);
  launch->checkWritten(site);
  if (launch->random(4) == 0)
    make(copy);
  launch->current->copies.push_back(copy);
}

TK_EMU_EXPORT void tk_emu_copies_wait(uint32_t site) {
  launch->current->site = site;
  Thread &thread = *launch->current;
  std::shuffle(thread.copies.begin(), thread.copies.end(), std::minstd_rand(launch->random(1u << 31)));
  launch->makeCopies(thread, /*all=*/true);
  for (const Copy &copy : thread.copies) {
    // As late as now it may have read and written.
    launch->markUnderWay(copy, false);
    launch->access(copy.source, copy.bytes, copy.bytes, copy.site, /*isWrite=*/false);
    launch->access(copy.target, copy.bytes, copy.bytes, copy.site, /*isWrite=*/true);
    launch->checkWritten(copy.site);
  }
  thread.copies.clear();
}

} // namespace trainkernel::emulator
