#include "train/optimiser/data_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace clover::train {
namespace {

std::vector<int64_t> epoch(DataOrder& order, int64_t number) {
  std::vector<int64_t> samples;
  for (int64_t step = 0; step < order.steps_per_epoch(); ++step) {
    const auto batch = order.batch(number * order.steps_per_epoch() + step);
    samples.insert(samples.end(), batch.begin(), batch.end());
  }
  return samples;
}

TEST(DataOrderTest, EveryEpochReadsEverySampleOnce) {
  DataOrder order(103, 10, 5);
  EXPECT_EQ(order.steps_per_epoch(), 11);
  std::vector<int64_t> all(103);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_THAT(epoch(order, 0), testing::UnorderedElementsAreArray(all));
  EXPECT_THAT(epoch(order, 3), testing::UnorderedElementsAreArray(all));
  EXPECT_EQ(order.batch(10).size(), 3u);  // the rest of an epoch, not filled up from the next
}

TEST(DataOrderTest, EpochsAndSeedsDiffer) {
  DataOrder order(50, 50, 5), other(50, 50, 6);
  EXPECT_NE(epoch(order, 0), epoch(order, 1));
  EXPECT_NE(epoch(order, 0), epoch(other, 0));
}

TEST(DataOrderTest, ABatchDependsOnNothingButItsNumber) {
  DataOrder walked(29, 4, 1);
  std::vector<std::vector<int64_t>> batches;
  for (int64_t step = 0; step < 30; ++step) batches.push_back(walked.batch(step));
  DataOrder jumped(29, 4, 1);
  for (int64_t step = 29; step >= 0; --step) EXPECT_EQ(jumped.batch(step), batches[step]) << step;
}

}  // namespace
}  // namespace clover::train
