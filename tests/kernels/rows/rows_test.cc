#include <gtest/gtest.h>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

TEST(Rows, AreThoseOfTheMatrixThatWasPacked) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (int64_t inputs : {1, 31, 48, 300}) {
      const at::Tensor weight = at::randn({37, inputs}).to(type);
      const PackedWeight packed = PackedWeight::pack({weight});
      for (const at::Tensor& ids : {at::tensor({36, 0, 15, 16, 16}, at::kLong), at::empty({0}, at::kLong)}) {
        on_every_path([&] {
          EXPECT_TRUE(same_bits(here::rows(packed, ids), weight.index_select(0, ids)))
              << type << " " << inputs;
        });
      }
    }
  }
}

}  // namespace
}  // namespace clover::kernels
