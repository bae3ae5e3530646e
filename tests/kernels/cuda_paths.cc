#include "kernels/gpu.h"

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

class NeedsGpu : public testing::Environment {
  void SetUp() override {
    try {
      open_gpu(0);
    } catch (const c10::Error& error) {
      GTEST_SKIP() << "no GPU that this driver and LibTorch can use: " << error.what_without_backtrace();
    }
  }
};
const testing::Environment* const needs_gpu = testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace

void on_every_path(const std::function<void()>& body) {
  body();
}

namespace here {

at::Tensor place(const at::Tensor& tensor) {
  return tensor.to(at::kCUDA);
}
PackedWeight place(const PackedWeight& weight) {
  return weight.to(at::kCUDA);
}
bool emulated() {
  return false;
}

}  // namespace here
}  // namespace clover::kernels
