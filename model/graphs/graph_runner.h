#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/gpu/graph.h"

namespace clover::model {

/// Captures work that comes again in the same shape as a CUDA graph (kernels/gpu/graph.h) and replays it:
/// launching many small kernels one by one takes longer than running them.
class GraphRunner {
 public:
  /// Captures nothing where not `enabled`, nor on a CPU.
  GraphRunner(at::Device device, bool enabled) : device_(device), enabled_(enabled && !device.is_cpu()) {}

  /// Whether work should be padded to a captured size at all.
  bool enabled() const { return enabled_; }

  /// One shape of work and, once captured, its graph.
  struct Work {
    explicit Work(kernels::Graph::Pool its_pool) : pool(its_pool) {}
    kernels::Graph::Pool pool;
    bool ran = false;
    std::unique_ptr<kernels::Graph> graph{};
  };

  /// Does what `body` does: runs it the first time, so that the GPU has loaded its kernels, captures it the
  /// second time and replays it from then on; where capture fails it goes on running it.  So `body` must find
  /// its inputs where they lay when it was captured, and its results lie where it put them then.  Returns
  /// whether it was warm: took as long as it will the next time.
  bool run(Work& work, const std::function<void()>& body);

  int64_t captured() const { return captured_; }  // graphs
  bool capture_failed() const { return capture_failed_; }
  double seconds() const { return seconds_; }  // of capturing
  int64_t bytes() const { return bytes_; }     // of the GPU's memory that graphs took

 private:
  /// False when the work could not be captured; nothing new is tried from then on, and one warning says why.
  bool capture(Work& work, const std::function<void()>& body);
  /// Tries again after a failure: where memory had run out, once LibTorch has given back what it held for
  /// later, else without overlapping kernels.
  std::unique_ptr<kernels::Graph> capture_or_retry(kernels::Graph::Pool pool,
                                                   const std::function<void()>& body);

  at::Device device_;
  bool enabled_;
  bool capture_failed_ = false;
  int64_t captured_ = 0;
  double seconds_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace clover::model
