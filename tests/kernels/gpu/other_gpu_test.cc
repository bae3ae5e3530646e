#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/gpu/gpu.h"
#include "tests/kernels/here.h"
#include "tests/support/stand_in_device.h"

// A GPU whose products of four warps do not have the bits of others, as nobody has seen one.
namespace clover::kernels {
namespace {

// Before anything opens it: a program asks once.
[[maybe_unused]] const int missing = test::warpgroup_bits_missing = 1;

TEST(OtherGpu, GoesWithoutWarpgroupProducts) {
  EXPECT_FALSE(uses_warpgroup_products(open_gpu(0)));
}

TEST(OtherGpu, RowsAreTheSameBitsAmongMany) {
  at::manual_seed(8);
  constexpr int64_t rows = 240, outputs = 256, inputs = 1000;
  const at::Tensor x = at::randn({rows, inputs}).to(at::kBFloat16);
  const PackedWeight weight = PackedWeight::pack({at::randn({outputs, inputs}).to(at::kBFloat16)});
  at::Tensor all = at::empty({rows, outputs}), one = at::empty({1, outputs});
  here::linear(x.slice(0, 100, 101), weight, {}, one);
  for (int size = 0; size < 5; ++size) {  // each time the emulated GPU has another
    here::linear(x, weight, {}, all);
    EXPECT_TRUE(same_bits(all[100], one[0]));
  }
}

}  // namespace
}  // namespace clover::kernels
