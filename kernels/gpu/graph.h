#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace clover::kernels {

/// A CUDA graph: ops that are captured once and then replayed together.  The tensors that they read and write
/// must keep their addresses.  Memory that the ops allocate during the capture comes from a pool and stays
/// reserved while the graph lives.  Graphs of one pool share this memory, except what a tensor still holds
/// after its capture. So graphs of one pool must be replayed one after the other, and a replay may overwrite
/// the results of another graph of the pool.
class Graph {
 public:
  /// A graph's results stay valid until another graph of the same pool is replayed.
  enum class Pool { passes, drafts };

  /// Calls `body` and captures its ops, which do not run.  Every kernel in it must have run before, because
  /// none can be loaded during a capture.  `body` must not wait for the GPU.  c10::Error in a build without
  /// CUDA, c10::OutOfMemoryError if the GPU has too little memory.
  static std::unique_ptr<Graph> capture(at::Device gpu, Pool pool, const std::function<void()>& body);

  virtual ~Graph() = default;
  /// Queues the graph's kernels on the GPU's current stream.
  virtual void replay() = 0;
};

/// Bytes of GPU memory that the graphs' pools hold and no tensor or graph uses.  Only later graphs can use
/// them.
int64_t unused_graph_memory(at::Device gpu);

}  // namespace clover::kernels
