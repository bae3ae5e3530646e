#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace clover::kernels {

/// Ops recorded once and started again together: a CUDA graph.  What they read and write stays where it was
/// when they were recorded; memory that they took from LibTorch is theirs for as long as the graph lives,
/// shared with other graphs wherever no tensor holds it, so graphs of one device must run one after the
/// other.
class Graph {
 public:
  /// Calls `body`, whose ops are recorded and not run.  Every kernel in it must have run before, because a
  /// GPU cannot load one meanwhile; it must not wait for the GPU.  c10::Error without a GPU.
  static std::unique_ptr<Graph> record(at::Device gpu, const std::function<void()>& body);

  virtual ~Graph() = default;
  virtual void start() = 0;
};

}  // namespace clover::kernels
