#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace clover::test {

/// Nobody may count on what this memory (a multiple of 2 bytes) holds: NaN as a floating-point number of any
/// size, far beyond everything as an index.
inline void spoil(void* memory, size_t bytes) {
  std::fill_n(static_cast<uint16_t*>(memory), bytes / 2, uint16_t{0x7ff8});
}

/// An emulated graph: what runs when it is started, and the memory that is its own.
struct Recording {
  std::vector<std::function<void()>> steps;
  struct Memory {
    std::shared_ptr<void> begin;
    size_t bytes;
  };
  std::vector<Memory> memory;
};

/// The one that is being recorded, or null.
extern Recording* recording;

/// What a program has started on the device so far, one by one: kernels, ATen's operators and copies on the
/// device, each 1, and a graph 1, whatever it holds.
extern int64_t launches;

/// Now, or whenever the graph that is being recorded is started.
inline void run_or_record(std::function<void()> step) {
  if (recording != nullptr) {
    recording->steps.push_back(std::move(step));
  } else {
    ++launches;
    step();
  }
}

}  // namespace clover::test
