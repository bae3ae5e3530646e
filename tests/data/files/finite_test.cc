#include "data/files/finite.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/input_error.h"

namespace clover::data {
namespace {

using test::input_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

TEST(Finite, FindsTheOneValueThatIsNoNumberWhereverItStands) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    for (const int64_t size : {1, 2, 3, 7, 8, 9, 1000, 70001}) {
      at::Tensor tensor = at::randn({size}, at::kFloat).to(dtype);
      tensor[0] = dtype == at::kHalf ? -65504.0 : -3e38;
      EXPECT_TRUE(all_finite(tensor)) << dtype << " " << size;
      for (const int64_t where : {int64_t{0}, size / 2, size - 1}) {
        for (const double value : {infinity, -infinity, not_a_number, -not_a_number}) {
          at::Tensor damaged = tensor.clone();
          damaged[where] = value;
          EXPECT_FALSE(all_finite(damaged)) << dtype << " " << size << " " << where << " " << value;
          EXPECT_FALSE(all_finite(damaged.flip(0)));
        }
      }
    }
  }
}

// Every bf16 and every fp16 value there is, against ATen.
TEST(Finite, AgreesWithAtenOnEveryValue) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = at::arange(1 << 16).to(at::kShort).view(dtype);
    for (int64_t i = 0; i < values.numel(); ++i)
      ASSERT_EQ(all_finite(values.narrow(0, i, 1)), values[i].isfinite().item<bool>()) << dtype << " " << i;
  }
}

TEST(Finite, AnythingElseIsFinite) {
  EXPECT_TRUE(all_finite(at::full({9}, -1, at::kLong)));
  EXPECT_TRUE(all_finite(at::empty({0}, at::kFloat)));
  EXPECT_FALSE(all_finite(at::full({4, 4}, infinity).slice(1, 0, 2)));  // not dense
}

TEST(Finite, ConvertsWhatFits) {
  const at::Tensor values = at::tensor({65504.0f, -65519.0f, 1e-9f});
  EXPECT_TRUE(at::equal(cast_finite("f", "w", values, at::kHalf), values.to(at::kHalf)));
  EXPECT_TRUE(at::equal(cast_finite("f", "w", values, at::kFloat), values));
  const at::Tensor ids = at::tensor({1, 4}, at::kLong);
  EXPECT_EQ(cast_finite("f", "w", ids, at::kHalf).scalar_type(), at::kLong);
}

TEST(Finite, RefusesWhatWouldBecomeInfiniteByItsName) {
  EXPECT_THAT(input_error([] {
                cast_finite("f", "w", at::tensor({1.0f, -70000.0f}), at::kHalf);
              }),
              AllOf(HasSubstr("f: tensor w"), HasSubstr("70000"), HasSubstr("float16 none above 65504"),
                    HasSubstr("bfloat16 or float32")));
  EXPECT_THAT(input_error([] {
                cast_finite("f", "w", at::full({3}, std::numeric_limits<float>::max()), at::kBFloat16);
              }),
              AllOf(HasSubstr("bfloat16 none above 3.38953e+38"), HasSubstr("--dtype float32")));
  for (const double value : {infinity, not_a_number}) {
    EXPECT_THAT(input_error([&] { cast_finite("f", "w", at::full({3}, value, at::kFloat), at::kHalf); }),
                HasSubstr("tensor w holds what is no finite number"));
  }
}

}  // namespace
}  // namespace clover::data
