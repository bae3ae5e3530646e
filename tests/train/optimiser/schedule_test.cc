#include "train/optimiser/schedule.h"

#include <gtest/gtest.h>

namespace clover::train {
namespace {

TEST(ScheduleTest, RisesLinearlyThenFallsByACosine) {
  const Schedule schedule{.peak = 2.0, .warmup = 4, .total = 12};
  EXPECT_DOUBLE_EQ(schedule.rate(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.rate(1), 1.0);
  EXPECT_DOUBLE_EQ(schedule.rate(3), 2.0);
  EXPECT_DOUBLE_EQ(schedule.rate(4), 2.0);
  EXPECT_NEAR(schedule.rate(8), 1.0, 1e-12);  // half way down
  EXPECT_GT(schedule.rate(11), 0);
  EXPECT_LT(schedule.rate(11), schedule.rate(10));
  EXPECT_NEAR(schedule.rate(12), 0, 1e-12);
}

TEST(ScheduleTest, ARunShorterThanItsWarmUpOnlyRises) {
  const Schedule schedule{.peak = 1.0, .warmup = 20, .total = 2};
  EXPECT_DOUBLE_EQ(schedule.rate(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.rate(1), 1.0);
}

TEST(ScheduleTest, NoWarmUpBeginsAtThePeak) {
  EXPECT_DOUBLE_EQ((Schedule{.peak = 3.0, .warmup = 0, .total = 5}).rate(0), 3.0);
}

}  // namespace
}  // namespace clover::train
