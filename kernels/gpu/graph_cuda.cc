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

// Pools of memory which no other part of the program uses; LibTorch's own begin at 1.
constexpr uint64_t first_pool = 1'000'001;
constexpr std::array pools{Graph::Pool::passes, Graph::Pool::drafts};
c10::cuda::MempoolId_t id_of(Graph::Pool pool) {
  return {0, first_pool + static_cast<uint64_t>(pool)};
}

/// Where graphs of a GPU are recorded: a stream of its own, because the default one cannot be captured, and
/// always the same one, because the pool shares memory among allocations of one stream only.
c10::cuda::CUDAStream recording_stream(at::Device gpu) {
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  auto found = streams.find(gpu.index());
  if (found == streams.end()) {
    // A pool that nobody holds cannot be used again, so this process holds them from now on.
    for (const Graph::Pool pool : pools) allocator::createOrIncrefPool(gpu.index(), id_of(pool));
    found = streams.emplace(gpu.index(), c10::cuda::getStreamFromPool(/*isHighPriority=*/false, gpu.index()))
                .first;
  }
  return found->second;
}

/// What is allocated on `stream` meanwhile comes from the pool.
class PoolMemory {
 public:
  PoolMemory(Graph::Pool pool, const c10::cuda::CUDAStream& stream)
      : pool_(id_of(pool)), device_(stream.device_index()) {
    allocator::beginAllocateToPool(device_, pool_,
                                   [own = stream.stream()](cudaStream_t asks) { return asks == own; });
  }
  ~PoolMemory() {
    allocator::endAllocateToPool(device_, pool_);
    // Memory that tensors or graphs do not hold is free within the pool.
    allocator::releasePool(device_, pool_);
  }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

 private:
  c10::cuda::MempoolId_t pool_;
  c10::DeviceIndex device_;
};

class Capture {
 public:
  explicit Capture(const c10::cuda::CUDAStream& stream) : stream_(stream.stream()) {
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (ended_) return;
    cudaGraph_t unwanted = nullptr;
    if (cudaStreamEndCapture(stream_, &unwanted) == cudaSuccess) cudaGraphDestroy(unwanted);
    cudaGetLastError();  // what went wrong is told by what was thrown
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
  /// Takes what it needs of the GPU now: `replay` must not fail for want of memory.
  CudaGraph(at::Device gpu, cudaGraph_t graph, cudaStream_t stream) : gpu_(gpu) {
    cudaError_t made = cudaGraphInstantiate(&ready_, graph, 0);
    cudaGraphDestroy(graph);
    if (made == cudaSuccess) made = cudaGraphUpload(ready_, stream);
    if (made == cudaErrorMemoryAllocation) cudaGetLastError();
    if (made != cudaSuccess && ready_ != nullptr) cudaGraphExecDestroy(ready_);
    TORCH_CHECK_WITH(OutOfMemoryError, made != cudaErrorMemoryAllocation,
                     "no memory is left for a CUDA graph");
    C10_CUDA_CHECK(made);
  }
  ~CudaGraph() override {
    cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(gpu_.index()).stream());
    cudaGraphExecDestroy(ready_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void replay() override {
    C10_CUDA_CHECK(cudaGraphLaunch(ready_, c10::cuda::getCurrentCUDAStream(gpu_.index()).stream()));
  }

 private:
  at::Device gpu_;
  cudaGraphExec_t ready_ = nullptr;
};

}  // namespace

std::unique_ptr<Graph> Graph::capture(at::Device gpu, Pool pool, const std::function<void()>& body) {
  const c10::cuda::CUDAStream stream = recording_stream(gpu);
  const c10::cuda::CUDAStream replaying = c10::cuda::getCurrentCUDAStream(gpu.index());
  // What it is doing may be what a graph's memory was last used for.
  replaying.synchronize();
  const c10::cuda::CUDAStreamGuard here(stream);
  const PoolMemory memory(pool, stream);
  Capture capture(stream);
  body();
  return std::make_unique<CudaGraph>(gpu, capture.end(), replaying.stream());
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
