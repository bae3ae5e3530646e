#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/gpu/graph.h"

namespace clover::model {

/// Captures work that repeats in the same shape as a CUDA graph (kernels/gpu/graph.h), and replays it.  For
/// small kernels, launching them one by one takes longer than running them.
class GraphRunner {
 public:
  /// Nothing is captured on a CPU, or if not `enabled`.
  GraphRunner(at::Device device, bool enabled) : device_(device), enabled_(enabled && !device.is_cpu()) {}

  /// Whether work should be padded to captured sizes (captured_sizes.h).
  bool enabled() const { return enabled_; }

  /// One shape of work and, once captured, its graph.
  struct Work {
    explicit Work(kernels::Graph::Pool graph_pool) : pool(graph_pool) {}
    kernels::Graph::Pool pool;
    bool has_run = false;
    std::unique_ptr<kernels::Graph> graph{};
  };

  /// Does the work of `body`.  The first call runs it, so that the GPU loads its kernels; the second call
  /// captures it; from then on the graph is replayed.  If capture fails, every call runs `body`.
  /// A replay reads its inputs and writes its results at the addresses of the capture.
  /// Returns whether the call was warm: later calls with this `work` will take as long.
  bool run(Work& work, const std::function<void()>& body);

  int64_t graph_count() const { return graph_count_; }  // captured so far
  /// Whether a capture has failed; then no other is tried.
  bool capture_failed() const { return capture_failed_; }
  double seconds() const { return seconds_; }  // spent on captures
  int64_t bytes() const { return bytes_; }     // of GPU memory that the graphs take

 private:
  /// Captures `body` as work.graph.  If that fails, returns false, and prints the reason the first time.
  bool capture(Work& work, const std::function<void()>& body);
  /// Captures `body`, and tries once more if that fails: after a lack of memory, when LibTorch's unused
  /// memory has been released; else without overlapping kernels.
  std::unique_ptr<kernels::Graph> capture_or_retry(kernels::Graph::Pool pool,
                                                   const std::function<void()>& body);

  at::Device device_;
  bool enabled_;
  bool capture_failed_ = false;
  int64_t graph_count_ = 0;
  double seconds_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace clover::model
