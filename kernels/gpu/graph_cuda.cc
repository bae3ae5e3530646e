#include "kernels/gpu/graph.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <map>

namespace clover::kernels {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// Ids of memory pools must be unique in the process.  LibTorch counts its own up from 1.
constexpr uint64_t first_pool = 1'000'001;
constexpr std::array pools{Graph::Pool::passes, Graph::Pool::drafts};
c10::cuda::MempoolId_t id_of(Graph::Pool pool) {
  return {0, first_pool + static_cast<uint64_t>(pool)};
}

/// The stream on which graphs of a GPU are captured.  Not the default stream, which cannot be captured; and
/// always the same one, because a pool reuses memory only for allocations of the same stream.
c10::cuda::CUDAStream capture_stream(at::Device gpu) {
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  auto found = streams.find(gpu.index());
  if (found == streams.end()) {
    // LibTorch deletes a pool without references, so this process keeps one reference to each.
    for (const Graph::Pool pool : pools) allocator::createOrIncrefPool(gpu.index(), id_of(pool));
    found = streams.emplace(gpu.index(), c10::cuda::getStreamFromPool(/*isHighPriority=*/false, gpu.index()))
                .first;
  }
  return found->second;
}

/// A scope in which memory that is allocated on `stream` comes from the pool.
class PoolMemory {
 public:
  PoolMemory(Graph::Pool pool, const c10::cuda::CUDAStream& stream)
      : pool_(id_of(pool)), device_(stream.device_index()) {
    allocator::beginAllocateToPool(
        device_, pool_, [own = stream.stream()](cudaStream_t allocating) { return allocating == own; });
  }
  ~PoolMemory() {
    allocator::endAllocateToPool(device_, pool_);
    // Drops the reference of this scope.  Memory that no tensor holds is free again within the pool.
    allocator::releasePool(device_, pool_);
  }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

 private:
  c10::cuda::MempoolId_t pool_;
  c10::DeviceIndex device_;
};

/// A stream capture; its destructor discards the graph unless end() was called.
class Capture {
 public:
  explicit Capture(const c10::cuda::CUDAStream& stream) : stream_(stream.stream()) {
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (ended_) return;
    cudaGraph_t discarded = nullptr;
    if (cudaStreamEndCapture(stream_, &discarded) == cudaSuccess) cudaGraphDestroy(discarded);
    cudaGetLastError();  // clears the error: an exception that reports it is under way
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    C10_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    return graph;
  }

 private:
  cudaStream_t stream_;
  bool ended_ = false;
};

class CudaGraph final : public Graph {
 public:
  /// Takes over `graph`.  Uploads it now, so that a later replay cannot fail for lack of memory.
  CudaGraph(at::Device gpu, cudaGraph_t graph, cudaStream_t stream) : gpu_(gpu) {
    cudaError_t result = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    if (result == cudaSuccess) result = cudaGraphUpload(executable_, stream);
    if (result == cudaErrorMemoryAllocation) cudaGetLastError();
    if (result != cudaSuccess && executable_ != nullptr) cudaGraphExecDestroy(executable_);
    TORCH_CHECK_WITH(OutOfMemoryError, result != cudaErrorMemoryAllocation,
                     "no memory is left for a CUDA graph");
    C10_CUDA_CHECK(result);
  }
  ~CudaGraph() override {
    cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(gpu_.index()).stream());
    cudaGraphExecDestroy(executable_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void replay() override {
    C10_CUDA_CHECK(cudaGraphLaunch(executable_, c10::cuda::getCurrentCUDAStream(gpu_.index()).stream()));
  }

 private:
  at::Device gpu_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

std::unique_ptr<Graph> Graph::capture(at::Device gpu, Pool pool, const std::function<void()>& body) {
  const c10::cuda::CUDAStream stream = capture_stream(gpu);
  const c10::cuda::CUDAStream replay_stream = c10::cuda::getCurrentCUDAStream(gpu.index());
  // Ops on it may still use memory of the pool that this capture will reuse.
  replay_stream.synchronize();
  const c10::cuda::CUDAStreamGuard guard(stream);
  const PoolMemory memory(pool, stream);
  Capture capture(stream);
  body();
  return std::make_unique<CudaGraph>(gpu, capture.end(), replay_stream.stream());
}

int64_t unused_graph_memory(at::Device gpu) {
  int64_t bytes = 0;
  for (const Graph::Pool pool : pools)
    for (const auto& segment : allocator::snapshot(id_of(pool), /*include_traces=*/false).segments)
      if (segment.device == gpu.index())
        bytes += static_cast<int64_t>(segment.total_size - segment.allocated_size);
  return bytes;
}

}  // namespace clover::kernels
