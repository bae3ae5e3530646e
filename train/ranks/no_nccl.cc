#include <c10/util/Exception.h>

#include "train/ranks/communicator.h"

namespace clover::train {

std::vector<uint8_t> GpuCollectives::new_id() {
  TORCH_CHECK(false, "This build has no NCCL.");
}

uint64_t GpuCollectives::identity(at::Device) {
  TORCH_CHECK(false, "This build has no NCCL.");
}

std::unique_ptr<GpuCollectives> GpuCollectives::connect(const std::vector<uint8_t>&, infer::Rank,
                                                        at::Device) {
  TORCH_CHECK(false, "This build has no NCCL.");
}

}  // namespace clover::train
