#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>
#include <unistd.h>

#include <cstring>

#include "data/files/hash.h"
#include "train/ranks/communicator.h"

namespace clover::train {
namespace {

void check(ncclResult_t result, const char* what) {
  TORCH_CHECK(result == ncclSuccess, "NCCL could not ", what, ": ", ncclGetErrorString(result),
              "; NCCL_DEBUG=INFO says more.");
}

class Nccl final : public GpuCollectives {
 public:
  Nccl(const ncclUniqueId& id, infer::Rank rank, at::Device gpu) : rank_(rank), gpu_(gpu) {
    c10::cuda::set_device(gpu.index());
    check(ncclCommInitRank(&communicator_, static_cast<int>(rank.count), id, static_cast<int>(rank.number)),
          "join the GPUs of all ranks");
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&last_exchange_, cudaEventDisableTiming));
  }
  // Not `ncclCommDestroy`, which waits for the other ranks, even dead ones.
  ~Nccl() override {
    ncclCommAbort(communicator_);
    cudaEventDestroy(last_exchange_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  void all_to_all(const at::Tensor& out, at::Tensor& in) override {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(gpu_.index()).stream();
    const auto count = static_cast<size_t>(out.size(1));
    const float* out_rows = out.const_data_ptr<float>();
    float* in_rows = in.mutable_data_ptr<float>();
    check(ncclGroupStart(), "begin an exchange");
    ncclResult_t queue_result = ncclSuccess;
    for (int rank = 0; rank < rank_.count; ++rank) {
      if (queue_result == ncclSuccess)
        queue_result = ncclSend(out_rows + rank * count, count, ncclFloat, rank, communicator_, stream);
      if (queue_result == ncclSuccess)
        queue_result = ncclRecv(in_rows + rank * count, count, ncclFloat, rank, communicator_, stream);
    }
    const ncclResult_t start_result = ncclGroupEnd();  // also after an error: an open group blocks the abort
    check(queue_result, "queue an exchange of gradients");
    check(start_result, "exchange gradients");
    C10_CUDA_CHECK(cudaEventRecord(last_exchange_, stream));
  }

  bool finished() override {
    ncclResult_t result = ncclSuccess;
    check(ncclCommGetAsyncError(communicator_, &result), "say how an exchange goes");
    check(result, "exchange gradients");
    const cudaError_t status = cudaEventQuery(last_exchange_);
    if (status == cudaErrorNotReady) {
      (void)
          cudaGetLastError();  // cudaErrorNotReady is no error, but some runtimes record it as the last error
      return false;
    }
    C10_CUDA_CHECK(status);
    return true;
  }

 private:
  infer::Rank rank_;
  at::Device gpu_;
  ncclComm_t communicator_ = nullptr;
  cudaEvent_t last_exchange_ = nullptr;  // recorded after the last exchange
};

}  // namespace

uint64_t GpuCollectives::identity(at::Device gpu) {
  char host[256] = "", bus[32] = "";
  ::gethostname(host, sizeof host - 1);
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, gpu.index()));
  return data::fnv1a(bus, data::fnv1a(host, data::fnv1a_offset_basis));
}

std::vector<uint8_t> GpuCollectives::new_id() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "make an id");
  const auto* bytes = reinterpret_cast<const uint8_t*>(&id);
  return {bytes, bytes + sizeof id};
}

std::unique_ptr<GpuCollectives> GpuCollectives::connect(const std::vector<uint8_t>& bytes, infer::Rank rank,
                                                        at::Device gpu) {
  ncclUniqueId id;
  TORCH_CHECK(bytes.size() == sizeof id, "rank 0 sent an id of ", bytes.size(), " bytes, expected ",
              sizeof id);
  std::memcpy(&id, bytes.data(), sizeof id);
  return std::make_unique<Nccl>(id, rank, gpu);
}

}  // namespace clover::train
