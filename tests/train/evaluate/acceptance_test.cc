#include "train/evaluate/acceptance.h"

#include <gtest/gtest.h>

namespace clover::train {
namespace {

int64_t length_of(std::vector<uint8_t> supervised) {
  return prompt_length(supervised);
}

TEST(PromptLengthTest, IsWhatStandsBeforeTheAnswerOrAQuarterOfAText) {
  EXPECT_EQ(length_of({0, 0, 1, 0, 1}), 2);
  EXPECT_EQ(length_of(std::vector<uint8_t>(40, 1)), 10);
  EXPECT_EQ(length_of({1, 1}), 1);
  EXPECT_EQ(length_of({0, 0, 0}), 3);
}

}  // namespace
}  // namespace clover::train
