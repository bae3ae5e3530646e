#include "kernels/graph.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace clover::kernels {
namespace {

// One pool of memory for all graphs, which no other part of the program uses; LibTorch's own begin at 1.
constexpr c10::cuda::MempoolId_t pool{0, 1'000'001};

/// A capture under way on a stream of its own, because the default one cannot be captured.  Memory that its
/// ops ask for comes from the pool.
class Capture {
 public:
  explicit Capture(at::Device gpu)
      : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, gpu.index())), guard_(stream_) {
    const cudaStream_t own = stream_.stream();
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(stream_.device_index(), pool,
                                                         [own](cudaStream_t asks) { return asks == own; });
    C10_CUDA_CHECK(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (cudaGraph_t unwanted = nullptr;
        !ended_ && cudaStreamEndCapture(stream_.stream(), &unwanted) == cudaSuccess)
      cudaGraphDestroy(unwanted);
    cudaGetLastError();  // an error of the capture is told by what was thrown
    c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_.device_index(), pool);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    C10_CUDA_CHECK(cudaStreamEndCapture(stream_.stream(), &graph));
    return graph;
  }

 private:
  c10::cuda::CUDAStream stream_;
  c10::cuda::CUDAStreamGuard guard_;
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
    c10::cuda::CUDACachingAllocator::releasePool(gpu_.index(), pool);
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
  // Memory freed by earlier ops must not be handed to the capture while they run.
  c10::cuda::getCurrentCUDAStream(gpu.index()).synchronize();
  cudaGraph_t graph = nullptr;
  {
    Capture capture(gpu);
    body();
    graph = capture.end();
  }
  return std::make_unique<CudaGraph>(gpu, graph);
}

}  // namespace clover::kernels
