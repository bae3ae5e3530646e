#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace clover::kernels {

/// A CUDA graph: ops that are captured once and then replayed together.  The tensors that they read and write
/// must stay where they were during the capture.  Memory that the ops take from LibTorch's allocator during
/// the capture belongs to the graph for as long as it lives.  Graphs of one pool share such memory wherever
/// no tensor holds it: they must be replayed one after the other, and a replay may overwrite what another
/// graph of the pool has computed.
class Graph {
 public:
  /// Graphs of each kind keep their results until another graph of the same kind is replayed.
  enum class Pool { passes, drafts };

  /// Calls `body`, whose ops are captured and do not run.  Every kernel in it must have run before, because a
  /// GPU cannot load one during a capture, and it must not wait for the GPU.  c10::Error without a GPU,
  /// c10::OutOfMemoryError where memory was lacking.
  static std::unique_ptr<Graph> capture(at::Device gpu, Pool pool, const std::function<void()>& body);

  virtual ~Graph() = default;
  virtual void replay() = 0;
};

/// Bytes of a GPU that graphs hold and do not use.  Later graphs can have them, other ops cannot.
int64_t unused_graph_memory(at::Device gpu);

}  // namespace clover::kernels
