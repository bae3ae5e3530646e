#include "kernels/graph.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

namespace clover::kernels {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// One pool of memory for all graphs, which no other part of the program uses; LibTorch's own begin at 1.
constexpr c10::cuda::MempoolId_t pool{0, 1'000'001};

/// Where graphs of a GPU are recorded: a stream of its own, because the default one cannot be captured, and
/// always the same one, because the pool shares memory among allocations of one stream only.
c10::cuda::CUDAStream recording_stream(at::Device gpu) {
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  auto found = streams.find(gpu.index());
  if (found == streams.end()) {
    // A pool that nobody holds cannot be used again, so this process holds it from now on.
    allocator::createOrIncrefPool(gpu.index(), pool);
    found = streams.emplace(gpu.index(), c10::cuda::getStreamFromPool(/*isHighPriority=*/false, gpu.index()))
                .first;
  }
  return found->second;
}

/// What is allocated on `stream` meanwhile comes from the pool.
class PoolMemory {
 public:
  explicit PoolMemory(const c10::cuda::CUDAStream& stream) : device_(stream.device_index()) {
    allocator::beginAllocateToPool(device_, pool,
                                   [own = stream.stream()](cudaStream_t asks) { return asks == own; });
  }
  ~PoolMemory() {
    allocator::endAllocateToPool(device_, pool);
    allocator::releasePool(device_,
                           pool);  // memory that tensors or graphs do not hold is free within the pool
  }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

 private:
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
  CudaGraph(at::Device gpu, cudaGraph_t graph) : gpu_(gpu) {
    const cudaError_t made = cudaGraphInstantiate(&ready_, graph, 0);
    cudaGraphDestroy(graph);
    C10_CUDA_CHECK(made);
  }
  ~CudaGraph() override {
    cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(gpu_.index()).stream());
    cudaGraphExecDestroy(ready_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void start() override {
    C10_CUDA_CHECK(cudaGraphLaunch(ready_, c10::cuda::getCurrentCUDAStream(gpu_.index()).stream()));
  }

 private:
  at::Device gpu_;
  cudaGraphExec_t ready_ = nullptr;
};

}  // namespace

std::unique_ptr<Graph> Graph::record(at::Device gpu, const std::function<void()>& body) {
  const c10::cuda::CUDAStream stream = recording_stream(gpu);
  // What the default stream is doing may be what a graph's memory was last used for.
  c10::cuda::getCurrentCUDAStream(gpu.index()).synchronize();
  const c10::cuda::CUDAStreamGuard here(stream);
  const PoolMemory memory(stream);
  Capture capture(stream);
  body();
  return std::make_unique<CudaGraph>(gpu, capture.end());
}

}  // namespace clover::kernels
