#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "kernels/gpu.h"

// Linked into a program whose tests need a GPU, skips all of them where there is none.
namespace clover::test {
namespace {

class NeedsGpu : public testing::Environment {
  void SetUp() override {
    try {
      kernels::open_gpu(0);
    } catch (const c10::Error& error) {
      GTEST_SKIP() << "no GPU that this driver and LibTorch can use: " << error.what_without_backtrace();
    }
  }
};
const testing::Environment* const needs_gpu = testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace clover::test
