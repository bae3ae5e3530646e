#include "model/graphs/graph_runner.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/overlap.h"

namespace clover::model {
namespace {

// GPU memory, in bytes, that graphs must leave to work that is not captured (prompts, large batches): such
// work cannot use the memory of graphs.
constexpr int64_t reserved_bytes = int64_t{512} << 20;

}  // namespace

bool GraphRunner::run(Work& work, const std::function<void()>& body) {
  if (work.graph) {
    work.graph->replay();
    return true;
  }
  const bool warm = work.has_run && capture_failed_;
  if (work.has_run && capture(work, body)) {
    work.graph->replay();
  } else {
    body();
    work.has_run = true;
  }
  return warm;
}

bool GraphRunner::capture(Work& work, const std::function<void()>& body) {
  if (capture_failed_) return false;
  kernels::synchronize(device_);  // so that `seconds_` counts the capture alone
  const auto begin = std::chrono::steady_clock::now();
  const int64_t free = kernels::free_gpu_memory(device_);
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, free >= reserved_bytes, "the GPU has ", free >> 20,
                     " MiB left, and needs some for what is not recorded");
    work.graph = capture_or_retry(work.pool, body);
  } catch (const c10::Error& error) {
    capture_failed_ = true;
    std::fprintf(stderr, "No more CUDA graphs are recorded, so decoding is slower: %s\n",
                 error.what_without_backtrace());
    return false;
  }
  ++graph_count_;
  bytes_ += std::max<int64_t>(0, free - kernels::free_gpu_memory(device_));
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return true;
}

std::unique_ptr<kernels::Graph> GraphRunner::capture_or_retry(kernels::Graph::Pool pool,
                                                              const std::function<void()>& body) {
  try {
    return kernels::Graph::capture(device_, pool, body);
  } catch (const c10::OutOfMemoryError&) {
    // LibTorch cannot free cached memory during a capture, so it is freed before another try.
    kernels::release_unused_memory(device_);
    return kernels::Graph::capture(device_, pool, body);
  } catch (const c10::Error& error) {
    // Some drivers cannot capture overlapping kernels (kernels/gpu/overlap.h).
    if (!kernels::kernels_overlap()) throw;
    kernels::let_kernels_overlap(false);
    try {
      auto graph = kernels::Graph::capture(device_, pool, body);
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
