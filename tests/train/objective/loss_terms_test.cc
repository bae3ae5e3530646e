#include "train/objective/loss_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/input_error.h"

namespace clover::train {
namespace {

TEST(LossTermsTest, ReadsTermsWithAndWithoutWeights) {
  const LossTerms one = LossTerms::parse("cross-entropy");
  EXPECT_EQ(one[LossTerm::cross_entropy], 1);
  EXPECT_EQ(one.count(), 1);
  EXPECT_FALSE(one.reads_target());
  const LossTerms several = LossTerms::parse(" 2.5 soft-labels+  0.1   smooth-l1 + lk");
  EXPECT_EQ(several[LossTerm::soft_labels], 2.5);
  EXPECT_EQ(several[LossTerm::smooth_l1], 0.1);
  EXPECT_EQ(several[LossTerm::lk], 1);
  EXPECT_FALSE(several.has(LossTerm::cross_entropy));
  EXPECT_EQ(several.count(), 3);
  EXPECT_TRUE(several.reads_target());
  EXPECT_EQ(several.weighted_sum({9, 2, 9, 3, 10}), 5 + 3 + 1);
}

TEST(LossTermsTest, RefusesAnythingElse) {
  const auto complaint = [](const char* text) {
    return test::input_error([&] { static_cast<void>(LossTerms::parse(text)); });
  };
  for (const char* text : {"",
                           " ",
                           "+",
                           "cross-entropy +",
                           "+ lk",
                           "Cross-entropy",
                           "cross entropy",
                           "cross-entropy lk",
                           "0 lk",
                           "-1 lk",
                           "1",
                           "0.5",
                           "0.5lk",
                           "1e400 lk",
                           "nan lk",
                           "inf lk",
                           "lk + 2 lk",
                           "0.1 * lk",
                           "1 2 lk",
                           "0x1 lk"})
    EXPECT_THAT(complaint(text), testing::HasSubstr("--loss")) << text;
  EXPECT_THAT(complaint("lk + kl"), testing::AllOf(testing::HasSubstr("\"kl\" is no term"),
                                                   testing::HasSubstr("total-variation, lk, smooth-l1")));
  EXPECT_THAT(complaint("lk + 2 lk"), testing::HasSubstr("stands twice"));
}

}  // namespace
}  // namespace clover::train
