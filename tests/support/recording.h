#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace clover::test {

/// Fills undefined memory (a multiple of 2 bytes) with values that show when they are read: NaN as a
/// floating-point number of any size, far out of range as an index.
inline void fill_with_nan(void* memory, size_t bytes) {
  std::fill_n(static_cast<uint16_t*>(memory), bytes / 2, uint16_t{0x7ff8});
}

/// The content of an emulated CUDA graph: what a replay runs, and the memory that was allocated while it was
/// recorded.
struct Recording {
  std::vector<std::function<void()>> steps;
  struct Memory {
    std::shared_ptr<void> begin;
    size_t bytes;
  };
  std::vector<Memory> memory;
};

/// The graph that is being recorded, or null.
extern Recording* recording;

/// How many kernels, operators of ATen, copies within the device and graphs the program has started on the
/// device.  A graph counts as 1.
extern int64_t launches;

/// Runs `step` now; while a graph is being recorded, adds it to the graph instead.
inline void run_or_record(std::function<void()> step) {
  if (recording != nullptr) {
    recording->steps.push_back(std::move(step));
  } else {
    ++launches;
    step();
  }
}

}  // namespace clover::test
