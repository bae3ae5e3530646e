#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace clover::kernels {

/// Ops recorded once and started again together: a CUDA graph.  What they read and write stays where it was
/// when they were recorded; memory that they took from LibTorch is theirs for as long as the graph lives,
/// shared with other graphs of its pool wherever no tensor holds it while they are recorded: these must run
/// one after the other, and whichever runs next may overwrite what one has computed.
class Graph {
 public:
  /// Graphs whose results are wanted until another one of the same kind runs.
  enum class Pool { passes, drafts };

  /// Calls `body`, whose ops are recorded and not run.  Every kernel in it must have run before, because a
  /// GPU cannot load one meanwhile; it must not wait for the GPU.  c10::Error without a GPU.
  /// OutOfMemoryError where memory was lacking.
  static std::unique_ptr<Graph> record(at::Device gpu, Pool pool, const std::function<void()>& body);

  virtual ~Graph() = default;
  virtual void start() = 0;
};

/// Bytes that graphs hold of a GPU and do not use: later ones can have them, and nobody else.
int64_t unused_graph_memory(at::Device gpu);

}  // namespace clover::kernels
