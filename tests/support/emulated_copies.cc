#include <cstring>
#include <vector>

#include "tests/support/emulated_threads.h"

// mbarriers, and the copies by TMA that they count (kernels/gpu/async_copies.cuh).
namespace clover::kernels::cuda::emulation {
namespace {

/// A copy of 16 bytes; of zeros if `from` is null.
struct Chunk {
  unsigned char* to;
  const unsigned char* from;
};
struct BoxCopy {
  Barrier* barrier;
  std::vector<Chunk> chunks;
};

std::vector<BoxCopy> pending_copies;  // of all blocks of the cluster

void end_phase_if_complete(Barrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.missing = barrier.arrivals;
}

void arrive_in_memory(const BoxCopy& copy) {
  for (const Chunk& chunk : copy.chunks) {
    if (chunk.from == nullptr) {
      std::memset(chunk.to, 0, 16);
    } else {
      std::memcpy(chunk.to, chunk.from, 16);
    }
  }
  copy.barrier->bytes -= static_cast<int32_t>(16 * copy.chunks.size());
  end_phase_if_complete(*copy.barrier);
}

void begin_copy(BoxCopy copy) {
  // The copy may arrive at any time from now on, so nothing may be read there.
  for (const Chunk& chunk : copy.chunks) {
    if (chunk.from != nullptr) expect_written(chunk.from);
    std::memset(chunk.to, 0xff, 16);
  }
  if (copies_arrive_at_once()) return arrive_in_memory(copy);
  pending_copies.push_back(std::move(copy));
}

}  // namespace

void init_barrier(Barrier* barrier, int arrivals) {
  *barrier = {static_cast<uint16_t>(arrivals), static_cast<uint16_t>(arrivals), 0, 0};
}

void arrive(Barrier* barrier, int bytes) {
  if (barrier->missing == 0) fail("more arrivals at a barrier than its phase has");
  barrier->bytes += bytes;
  --barrier->missing;
  end_phase_if_complete(*barrier);
  // Threads that wait for this phase may run before the next instruction of this thread.  If a kernel
  // releases a buffer before its last read, they overwrite it now.
  if (copies_arrive_at_once()) pause(State::yielded);
}

bool phase_has_ended(const Barrier* barrier, unsigned phase) {
  for (size_t i = 0; i < pending_copies.size();) {
    if (pending_copies[i].barrier != barrier) {
      ++i;
      continue;
    }
    const BoxCopy copy = std::move(pending_copies[i]);
    pending_copies.erase(pending_copies.begin() + static_cast<std::ptrdiff_t>(i));
    arrive_in_memory(copy);
  }
  return barrier->phase != (phase & 1);
}

void wait_for_phase(Barrier* barrier, unsigned phase) {
  self().phase_barrier = barrier;
  self().phase = phase;
  if (!phase_has_ended(barrier, phase)) pause(State::at_phase);
}

void copy_box(void* to, const TensorMap& map, int column, int row, Barrier* barrier) {
  if (reinterpret_cast<uintptr_t>(to) % 128 != 0) fail("a box that is not aligned to 128 bytes");
  const int64_t used_row_bytes = map.columns * map.element_bytes;
  if (reinterpret_cast<uintptr_t>(map.first) % 16 != 0 || map.row_bytes % 16 != 0 || used_row_bytes % 16 != 0)
    fail("a matrix whose rows are not aligned to 16 bytes");
  if (map.box_rows > 256 || map.box_row_bytes > 256 * map.element_bytes) fail("a box that is too large");
  const int chunks_per_row = map.box_row_bytes / 16;
  const auto first_row = static_cast<int>(reinterpret_cast<uintptr_t>(to) / 128 % 8);  // in 1024 bytes
  BoxCopy copy{barrier, {}};
  for (int box_row = 0; box_row < map.box_rows; ++box_row) {
    for (int chunk = 0; chunk < chunks_per_row; ++chunk) {
      const int64_t from_row = row + box_row, from_byte = column * map.element_bytes + 16 * chunk;
      const bool in_matrix =
          from_row >= 0 && from_row < map.rows && from_byte >= 0 && from_byte < used_row_bytes;
      const int position = map.swizzled ? chunk ^ (first_row + box_row) % 8 : chunk;
      copy.chunks.push_back({static_cast<unsigned char*>(to) + box_row * map.box_row_bytes + position * 16,
                             in_matrix ? map.first + from_row * map.row_bytes + from_byte : nullptr});
    }
  }
  begin_copy(std::move(copy));
}

void forget_box_copies() {
  pending_copies.clear();
}

void expect_no_box_copies() {
  if (!pending_copies.empty()) fail("a block ends whose copies are under way");
}

}  // namespace clover::kernels::cuda::emulation
