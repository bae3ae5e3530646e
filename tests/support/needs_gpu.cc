#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/gpu/gpu.h"

// For test programs that need a GPU: without one, all tests of the program are skipped, or fail if the
// environment variable CLOVER_NEEDS_GPU is set, as scripts/test_gpu does.
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
