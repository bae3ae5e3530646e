#include "kernels/weights/packed_weight.h"

#include <ATen/ATen.h>

#include "tests/kernels/paths.h"

namespace clover::kernels {
namespace {

TEST(PackedWeight, GivesBackWhatWasPacked) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (auto [outputs, inputs] : {std::pair{1, 1}, {16, 32}, {17, 33}, {40, 7}, {33, 576}}) {
      const at::Tensor weight = at::randn({outputs, inputs}).to(type);
      const PackedWeight packed = PackedWeight::pack({weight});
      EXPECT_EQ(packed.outputs(), outputs);
      EXPECT_EQ(packed.inputs(), inputs);
      EXPECT_EQ(packed.dtype(), type);
      EXPECT_TRUE(same_bits(packed.unpack(), weight)) << type << " " << outputs << "x" << inputs;
    }
  }
}

TEST(PackedWeight, StacksItsSources) {
  const at::Tensor q = at::randn({24, 40}).to(at::kBFloat16), k = at::randn({5, 40}).to(at::kBFloat16);
  const at::Tensor strided = at::randn({40, 9}).to(at::kBFloat16).t();
  const PackedWeight packed = PackedWeight::pack({q, k, strided});
  EXPECT_TRUE(same_bits(packed.unpack(), at::cat({q, k, strided})));
}

TEST(PackedWeight, PairsOfInputsLieSideBySideAndPaddingIsZero) {
  const at::Tensor weight = at::randn({17, 3}).to(at::kBFloat16);
  const PackedWeight packed = PackedWeight::pack({weight});
  ASSERT_EQ(packed.panels().sizes(), (at::IntArrayRef{2, 16, 16, 2}));
  for (int64_t panel = 0; panel < 2; ++panel) {
    for (int64_t pair = 0; pair < 16; ++pair) {
      for (int64_t output = 0; output < 16; ++output) {
        for (int64_t part = 0; part < 2; ++part) {
          const int64_t n = panel * 16 + output, k = pair * 2 + part;
          const float expected = n < 17 && k < 3 ? weight[n][k].item<float>() : 0;
          ASSERT_EQ(packed.panels()[panel][pair][output][part].item<float>(), expected);
        }
      }
    }
  }
}

TEST(PackedWeight, LooksUpRows) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor weight = at::randn({50, 37}).to(type);
    const at::Tensor ids = at::tensor({49, 0, 7, 7, 16}, at::kLong);
    EXPECT_TRUE(same_bits(PackedWeight::pack({weight}).rows(ids), weight.index_select(0, ids)));
    EXPECT_EQ(PackedWeight::pack({weight}).rows(at::empty({0}, at::kLong)).sizes(), (at::IntArrayRef{0, 37}));
  }
}

TEST(PackedWeight, RefusesWhatItCannotHold) {
  const at::Tensor weight = at::zeros({4, 8}, at::kBFloat16);
  EXPECT_NE(error_of([&] { PackedWeight::pack({}); }).find("no weights"), std::string::npos);
  EXPECT_NE(error_of([&] {
              PackedWeight::pack({weight, at::zeros({4, 8})});
            }).find("share one dtype"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              PackedWeight::pack({weight, at::zeros({4, 9}, at::kBFloat16)});
            }).find("[4, 9]"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              PackedWeight::pack({at::zeros({4, 8}, at::kInt)});
            }).find("Int"),
            std::string::npos);
  const PackedWeight packed = PackedWeight::pack({weight});
  EXPECT_NE(error_of([&] { packed.rows(at::tensor({4}, at::kLong)); }).find("id 4 is outside [0, 4)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { packed.rows(at::tensor({-1}, at::kLong)); }).find("outside"), std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
