#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/gpu/gpu.h"

// Linked into a program whose tests need a GPU, skips all of them where there is none; where CLOVER_NEEDS_GPU
// is set (scripts/test_gpu) they fail.
namespace clover::test {
namespace {

class NeedsGpu : public testing::Environment {
  void SetUp() override {
    try {
      kernels::open_gpu(0);
    } catch (const c10::Error& error) {
      if (std::getenv("CLOVER_NEEDS_GPU"))
        FAIL() << "no GPU could be opened: " << error.what_without_backtrace();
      GTEST_SKIP() << "no GPU that this driver and LibTorch can use: " << error.what_without_backtrace();
    }
  }
};
const testing::Environment* const needs_gpu = testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace clover::test
