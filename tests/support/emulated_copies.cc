#include <cstring>
#include <vector>

#include "tests/support/emulated_threads.h"

// Copies that barriers in shared memory count.
namespace clover::kernels::cuda::emulation {
namespace {

/// Sixteen bytes on their way, zeros where `from` is null.
struct Sixteen {
  unsigned char* to;
  const unsigned char* from;
};
struct BoxCopy {
  Barrier* barrier;
  std::vector<Sixteen> parts;
};

std::vector<BoxCopy> under_way;

void end_phase_if_complete(Barrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.missing = barrier.arrivals;
}

void arrive_in_memory(const BoxCopy& copy) {
  for (const Sixteen& part : copy.parts) {
    if (part.from == nullptr) {
      std::memset(part.to, 0, 16);
    } else {
      std::memcpy(part.to, part.from, 16);
    }
  }
  copy.barrier->bytes -= static_cast<int32_t>(16 * copy.parts.size());
  end_phase_if_complete(*copy.barrier);
}

void begin(BoxCopy copy) {
  for (const Sixteen& part : copy.parts)
    std::memset(part.to, 0xff, 16);  // it may arrive at any time from now on
  if (copies_arrive_at_once()) return arrive_in_memory(copy);
  under_way.push_back(std::move(copy));
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
}

bool phase_has_ended(const Barrier* barrier, unsigned phase) {
  for (size_t i = 0; i < under_way.size();) {
    if (under_way[i].barrier != barrier) {
      ++i;
      continue;
    }
    const BoxCopy copy = std::move(under_way[i]);
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
    arrive_in_memory(copy);
  }
  return barrier->phase != (phase & 1);
}

void wait_for_phase(Barrier* barrier, unsigned phase) {
  self().phase_of = barrier;
  self().phase = phase;
  if (!phase_has_ended(barrier, phase)) pause(State::at_phase);
}

void copy_box(void* to, const TensorMap& map, int column, int row, Barrier* barrier) {
  if (reinterpret_cast<uintptr_t>(to) % 128 != 0) fail("a box that is not aligned to 128 bytes");
  const int64_t length = map.columns * map.number_bytes;
  if (reinterpret_cast<uintptr_t>(map.first) % 16 != 0 || map.row_bytes % 16 != 0 || length % 16 != 0)
    fail("a matrix whose rows are not aligned to 16 bytes");
  if (map.box_rows > 256 || map.box_bytes > 256 * map.number_bytes) fail("a box that is too large");
  const int sixteens = map.box_bytes / 16;
  const auto first_row = static_cast<int>(reinterpret_cast<uintptr_t>(to) / 128 % 8);  // of 1024 bytes
  BoxCopy copy{barrier, {}};
  for (int of_box = 0; of_box < map.box_rows; ++of_box) {
    for (int sixteen = 0; sixteen < sixteens; ++sixteen) {
      const int64_t from_row = row + of_box, from = column * map.number_bytes + 16 * sixteen;
      const bool there = from_row >= 0 && from_row < map.rows && from >= 0 && from < length;
      const int place = map.swizzled ? sixteen ^ (first_row + of_box) % 8 : sixteen;
      copy.parts.push_back({static_cast<unsigned char*>(to) + of_box * map.box_bytes + place * 16,
                            there ? map.first + from_row * map.row_bytes + from : nullptr});
    }
  }
  begin(std::move(copy));
}

void forget_box_copies() {
  under_way.clear();
}

void expect_no_box_copies() {
  if (!under_way.empty()) fail("a block ends whose copies are under way");
}

}  // namespace clover::kernels::cuda::emulation
