//===- Memory.cpp - bounds, alignment and races of accesses ---------------===//

#include "lib/Emulator/Emulator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sys/mman.h>

namespace trainkernel::emulator {

static void *reserve(uint64_t bytes) {
  void *made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED)
    throw std::bad_alloc();
  return made;
}

// Buffers that overlap, as a donated input and its output do, are one.
static std::vector<Buffer> joined(const LaunchSpec &spec) {
  std::vector<Buffer> all, result;
  for (uint32_t i = 0; i < spec.numBuffers; ++i) {
    Buffer buffer;
    buffer.begin = spec.addresses[i];
    buffer.end = buffer.begin + spec.sizes[i];
    buffer.name = spec.names[i];
    buffer.isFilled = spec.filled[i];
    if (spec.sizes[i] > 0)
      all.push_back(std::move(buffer));
  }
  std::sort(all.begin(), all.end(), [](const Buffer &a, const Buffer &b) { return a.begin < b.begin; });
  for (Buffer &buffer : all) {
    if (result.empty() || buffer.begin >= result.back().end) {
      result.push_back(std::move(buffer));
      continue;
    }
    result.back().end = std::max(result.back().end, buffer.end);
    result.back().isFilled |= buffer.isFilled;
    result.back().name += " and " + buffer.name;
  }
  return result;
}

void Launch::makeBuffers() {
  // Whatever was there is a NaN. A gap between the CTAs' memories shows who leaves his own.
  sharedStride = (spec.sharedBytes + 4095) / 4096 * 4096 + 4096;
  sharedTotal = sharedStride * spec.grid;
  sharedMemory = static_cast<char *>(reserve(sharedTotal));
  buffers = joined(spec);
  for (uint32_t i = 0; i < spec.grid; ++i) {
    char *memory = sharedMemory + i * sharedStride;
    ctas[i].shared = memory;
    std::fill(memory, memory + spec.sharedBytes, '\xFF');
    Buffer buffer;
    buffer.begin = reinterpret_cast<uint64_t>(memory);
    buffer.end = buffer.begin + spec.sharedBytes;
    buffer.name = "the shared memory of CTA " + std::to_string(i);
    buffer.isShared = true;
    buffers.push_back(std::move(buffer));
  }
  std::sort(buffers.begin(), buffers.end(), [](const Buffer &a, const Buffer &b) { return a.begin < b.begin; });
  for (Buffer &buffer : buffers) {
    uint64_t cells = (buffer.end - buffer.begin + spec.granule - 1) / spec.granule + 1;
    buffer.cells = static_cast<Cell *>(reserve(cells * sizeof(Cell)));
  }
  lastBuffer = &buffers.front();
}

static std::string verb(bool isWrite) { return isWrite ? "writes" : "reads"; }

void Launch::failOutside(uint64_t address, uint32_t bytes, uint32_t site, bool isWrite) {
  // The nearest buffer tells most.
  const Buffer *nearest = nullptr;
  int64_t distance = 0;
  for (const Buffer &buffer : buffers) {
    int64_t from = address < buffer.begin ? static_cast<int64_t>(buffer.begin - address)
                                          : static_cast<int64_t>(address - buffer.end);
    if (!nearest || std::abs(from) < std::abs(distance))
      nearest = &buffer, distance = from;
  }
  std::string place = address < nearest->begin ? " before the start of " : " after the end of ";
  fail(nameOfSite(site) + " " + verb(isWrite) + " " + std::to_string(bytes) + " bytes out of bounds, " +
       std::to_string(distance) + place + nearest->name + " (" + std::to_string(nearest->end - nearest->begin) +
       " bytes)");
}

Buffer &Launch::find(uint64_t address, uint32_t bytes, uint32_t site, bool isWrite) {
  auto holds = [&](const Buffer &buffer) { return buffer.begin <= address && address + bytes <= buffer.end; };
  if (holds(*lastBuffer))
    return *lastBuffer;
  auto after = std::upper_bound(buffers.begin(), buffers.end(), address,
                                [](uint64_t value, const Buffer &buffer) { return value < buffer.begin; });
  if (after == buffers.begin() || !holds(*(after - 1)))
    failOutside(address, bytes, site, isWrite);
  lastBuffer = &*(after - 1);
  return *lastBuffer;
}

void Launch::failRace(const Buffer &buffer, uint64_t address, const Access &other, bool otherWrites, uint32_t site,
                      bool isWrite) {
  const Cta &cta = ctas[other.thread >> threadBits & ctaMask];
  const Thread &thread = cta.threads[other.thread & ((1 << threadBits) - 1)];
  std::string where = "byte " + std::to_string(address - buffer.begin) + " of " + buffer.name;
  if (other.thread & underWay)
    fail(nameOfSite(site) + " " + verb(isWrite) + " " + where + ", to which the " + nameOfSite(other.site) + " by " +
         nameOf(thread) + " is still under way");
  fail("race: " + nameOfSite(site) + " " + verb(isWrite) + " " + where + ", which " + nameOf(thread) + " " +
       verb(otherWrites) + " in " + nameOfSite(other.site) + " with no barrier between them");
}

void Launch::check(Buffer &buffer, uint64_t address, uint32_t bytes, uint32_t site, bool isWrite) {
  uint64_t first = (address - buffer.begin) / spec.granule;
  uint64_t last = (address - buffer.begin + bytes - 1) / spec.granule;
  const Thread &thread = *current;
  Access mine{idOf(thread), thread.epoch, site};
  for (uint64_t i = first; i <= last; ++i) {
    Cell &cell = buffer.cells[i];
    if (!isWrite && !buffer.isFilled && !cell.write.epoch)
      fail(nameOfSite(site) + " reads byte " + std::to_string(i * spec.granule) + " of " + buffer.name +
           ", which nobody has written");
    // Its own write is a conflict only where it is a copy under way, which has a mark more.
    if (cell.write.epoch && cell.write.thread != mine.thread &&
        (cell.write.thread & underWay || !isOrdered(cell.write, thread))) {
      uint64_t place = buffer.begin + i * spec.granule;
      if (!isWrite || cell.write.thread & underWay)
        failRace(buffer, place, cell.write, true, site, isWrite);
      doubts.push_back({&buffer, place, cell.write, {}});
      std::memcpy(doubts.back().bytes, reinterpret_cast<const void *>(place), spec.granule);
    }
    bool isUnordered = cell.read.epoch && cell.read.thread != mine.thread && !isOrdered(cell.read, thread);
    if (isWrite) {
      if (isUnordered)
        failRace(buffer, buffer.begin + i * spec.granule, cell.read, false, site, isWrite);
      cell.write = mine;
      cell.read.epoch = 0;
    } else if (!isUnordered) {
      cell.read = mine;
    } else if ((cell.read.thread >> threadBits & ctaMask) == thread.cta->index) {
      cell.read = {cell.read.thread | severalReaders, std::max(cell.read.epoch, thread.epoch), site};
    } else if (random(2)) {
      // Of readers in several CTAs one is remembered: which, is chance.
      cell.read = mine;
    }
  }
}

// Threads without work of their own may do the last one's again: who writes what is there already does no harm.
void Launch::checkWritten(uint32_t site) {
  for (const Doubt &doubt : doubts)
    if (std::memcmp(doubt.bytes, reinterpret_cast<const void *>(doubt.address), spec.granule) != 0)
      failRace(*doubt.buffer, doubt.address, doubt.other, true, site, true);
  doubts.clear();
}

void Launch::access(const void *pointer, uint32_t bytes, uint32_t alignment, uint32_t site, bool isWrite) {
  auto address = reinterpret_cast<uint64_t>(pointer);
  Buffer &buffer = find(address, bytes, site, isWrite);
  if (address % alignment)
    fail(nameOfSite(site) + " " + verb(isWrite) + " " + std::to_string(bytes) + " bytes at byte " +
         std::to_string(address - buffer.begin) + " of " + buffer.name + ", expected a multiple of " +
         std::to_string(alignment));
  if (buffer.isShared) {
    char *shared = current->cta->shared;
    if (buffer.begin != reinterpret_cast<uint64_t>(shared))
      fail(nameOfSite(site) + " " + verb(isWrite) + " " + buffer.name + ", which is not its own");
  } else if (spec.overlapsLaunches && !current->hasWaitedForLaunches) {
    fail(nameOfSite(site) + " " + verb(isWrite) + " " + buffer.name + " before it has waited for earlier launches");
  }
  if (buffer.isShared && isWrite && !current->unpublishedEpoch)
    current->unpublishedEpoch = current->epoch;
  check(buffer, address, bytes, site, isWrite);
}

void Launch::checkPublished(const void *pointer, uint32_t bytes, uint32_t site) {
  auto address = reinterpret_cast<uint64_t>(pointer);
  Buffer &buffer = find(address, bytes, site, /*isWrite=*/false);
  uint64_t first = (address - buffer.begin) / spec.granule;
  uint64_t last = (address - buffer.begin + bytes - 1) / spec.granule;
  for (uint64_t i = first; i <= last; ++i) {
    const Access &write = buffer.cells[i].write;
    const Thread &writer = ctas[write.thread >> threadBits & ctaMask].threads[write.thread & ((1 << threadBits) - 1)];
    if (write.epoch && writer.unpublishedEpoch && write.epoch >= writer.unpublishedEpoch)
      fail(nameOfSite(site) + " reads byte " + std::to_string(i * spec.granule) + " of " + buffer.name + ", which " +
           nameOf(writer) + " writes in " + nameOfSite(write.site) + " with no fence for asynchronous units behind");
  }
}

void Launch::markUnderWay(const Copy &copy, bool isUnderWay) {
  auto address = reinterpret_cast<uint64_t>(copy.target);
  Buffer &buffer = find(address, copy.bytes, copy.site, true);
  uint64_t first = (address - buffer.begin) / spec.granule;
  uint64_t last = (address - buffer.begin + copy.bytes - 1) / spec.granule;
  for (uint64_t i = first; i <= last; ++i) {
    uint32_t &thread = buffer.cells[i].write.thread;
    thread = isUnderWay ? thread | underWay : thread & ~underWay;
  }
}

TK_EMU_EXPORT void tk_emu_read(const void *address, uint32_t bytes, uint32_t alignment, uint32_t site) {
  launch->access(address, bytes, alignment, site, /*isWrite=*/false);
}

TK_EMU_EXPORT void tk_emu_write(void *address, uint32_t bytes, uint32_t alignment, uint32_t site) {
  launch->access(address, bytes, alignment, site, /*isWrite=*/true);
}

TK_EMU_EXPORT void tk_emu_written(uint32_t site) { launch->checkWritten(site); }

TK_EMU_EXPORT void *tk_emu_shared_memory() { return launch->current->cta->shared; }

TK_EMU_EXPORT uint64_t tk_emu_shared_offset(const char *address) {
  return static_cast<uint64_t>(address - launch->current->cta->shared);
}

TK_EMU_EXPORT void *tk_emu_shared_pointer(uint64_t offset) {
  // 32-bit arithmetic may wrap around below the start.
  return launch->current->cta->shared + static_cast<int32_t>(offset);
}

} // namespace trainkernel::emulator
