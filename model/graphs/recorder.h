#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/gpu/graph.h"

namespace clover::model {

/// Work of more rows takes longer than starting its kernels does, and is not recorded.
constexpr int64_t most_recorded_rows = 256;
/// How many rows or pages work of so many is recorded for: few enough sizes to be met again.  Rows up to
/// most_recorded_rows.
int64_t recorded_rows(int64_t rows);
int64_t recorded_pages(int64_t pages);
/// The least one that is neither below `count` nor below `least`, itself one.
int64_t power_of_two(int64_t count, int64_t least);

/// Decides when work that comes again in the same shape is recorded as a graph of a GPU and replayed:
/// starting many small kernels one by one takes longer than running them.
class Recorder {
 public:
  /// Not `enabled`, or on the CPU: nothing is recorded.
  Recorder(at::Device device, bool enabled) : device_(device), enabled_(enabled && !device.is_cpu()) {}

  /// Whether work should be brought into a recorded shape at all.
  bool enabled() const { return enabled_; }

  /// What has become of one shape of work.
  struct Work {
    explicit Work(kernels::Graph::Pool its_pool) : pool(its_pool) {}
    kernels::Graph::Pool pool;
    bool ran = false;
    std::unique_ptr<kernels::Graph> graph{};
  };

  /// Does what `body` does: runs it the first time, so that the GPU has loaded its kernels, records it the
  /// second and replays it from then on; where the GPU cannot record it, goes on running it.  So `body` must
  /// find its inputs where they lay when it was recorded, and its results lie where it put them then. Returns
  /// whether it took as long as it will the next time.
  bool run(Work& work, const std::function<void()>& body);

  int64_t recorded() const { return recorded_; }
  bool gave_up() const { return gave_up_; }
  double seconds() const { return seconds_; }  // of recording
  int64_t bytes() const { return bytes_; }     // of the GPU, taken by it

 private:
  /// False when it could not be recorded; nothing new is tried from then on, and one warning tells why.
  bool record(Work& work, const std::function<void()>& body);
  /// Tried again where memory had run out and some was held for later, and without overlap.
  std::unique_ptr<kernels::Graph> recorded(kernels::Graph::Pool pool, const std::function<void()>& body);

  at::Device device_;
  bool enabled_;
  bool gave_up_ = false;
  int64_t recorded_ = 0;
  double seconds_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace clover::model
