#include "model/graphs/recorder.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/overlap.h"

namespace clover::model {
namespace {

// Trees of five rows for 1, 4, 16 and 48 sequences are met most.
constexpr std::array<int64_t, 17> sizes{
    1, 2, 4, 5, 8, 16, 20, 24, 32, 48, 64, 80, 96, 128, 192, 240, most_recorded_rows};
// What is not recorded (prompts, large batches) needs memory, too, and cannot have that of graphs.
constexpr int64_t left_for_others = int64_t{512} << 20;
constexpr int64_t fewest_pages = 4;  // of 64 tokens: fewer shapes to record

}  // namespace

int64_t recorded_rows(int64_t rows) {
  TORCH_CHECK(rows <= sizes.back(), "recorded_rows: expected at most ", sizes.back(), " rows, found ", rows);
  return *std::lower_bound(sizes.begin(), sizes.end(), rows);
}

int64_t recorded_pages(int64_t pages) {
  return power_of_two(pages, fewest_pages);
}

int64_t power_of_two(int64_t count, int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(count, least))));
}

bool Recorder::run(Work& work, const std::function<void()>& body) {
  if (work.graph) {
    work.graph->start();
    return true;
  }
  const bool settled = work.ran && gave_up_;
  if (work.ran && record(work, body)) {
    work.graph->start();
  } else {
    body();
    work.ran = true;
  }
  return settled;
}

bool Recorder::record(Work& work, const std::function<void()>& body) {
  if (gave_up_) return false;
  kernels::wait_for(device_);  // what it is busy with is no part of recording
  const auto begin = std::chrono::steady_clock::now();
  const int64_t free = kernels::free_gpu_memory(device_);
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, free >= left_for_others, "the GPU has ", free >> 20,
                     " MiB left, and needs some for what is not recorded");
    work.graph = recorded(work.pool, body);
  } catch (const c10::Error& error) {
    gave_up_ = true;
    std::fprintf(stderr, "No more CUDA graphs are recorded, so decoding is slower: %s\n",
                 error.what_without_backtrace());
    return false;
  }
  ++recorded_;
  bytes_ += std::max<int64_t>(0, free - kernels::free_gpu_memory(device_));
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return true;
}

std::unique_ptr<kernels::Graph> Recorder::recorded(kernels::Graph::Pool pool,
                                                   const std::function<void()>& body) {
  try {
    return kernels::Graph::record(device_, pool, body);
  } catch (const c10::OutOfMemoryError&) {
    // Nothing is given back while a graph is being recorded, so what the last run left is in its way.
    kernels::release_unused_memory(device_);
    return kernels::Graph::record(device_, pool, body);
  } catch (const c10::Error& error) {
    // A driver that takes graphs may yet refuse kernels that start while others or copies end.
    if (!kernels::kernels_overlap()) throw;
    kernels::let_kernels_overlap(false);
    try {
      auto graph = kernels::Graph::record(device_, pool, body);
      std::fprintf(stderr, "GPU kernels start one after the other from now on, which is slower: %s\n",
                   error.what_without_backtrace());
      return graph;
    } catch (const c10::Error&) {
      kernels::let_kernels_overlap(true);
      throw;
    }
  }
}

}  // namespace clover::model
