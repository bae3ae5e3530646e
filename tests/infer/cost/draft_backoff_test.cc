#include "infer/cost/draft_backoff.h"

#include <gtest/gtest.h>

namespace clover::infer {
namespace {

// How many steps it takes until the heads draft again, including the step in which they do.
int steps_until_asked(DraftBackoff& backoff) {
  int steps = 1;
  while (!backoff.tick_and_may_draft()) ++steps;
  return steps;
}

TEST(DraftBackoff, LastsEverLongerWhileGuessesAreNotWorthTheirRows) {
  DraftBackoff backoff;
  for (int miss = 0; miss < 4; ++miss) {
    EXPECT_EQ(steps_until_asked(backoff), 1) << miss;  // now and then nothing is worth it
    backoff.record(false);
  }
  int before = 1;
  for (int look = 0; look < 10; ++look) {
    const int steps = steps_until_asked(backoff);
    EXPECT_GE(steps, before);
    EXPECT_LE(steps, 64);
    before = steps;
    backoff.record(false);
  }
  EXPECT_EQ(before, 64);
}

TEST(DraftBackoff, EndsWithOneGuessThatIs) {
  DraftBackoff backoff;
  for (int miss = 0; miss < 8; ++miss) {
    steps_until_asked(backoff);
    backoff.record(false);
  }
  steps_until_asked(backoff);
  backoff.record(true);
  for (int miss = 0; miss < 4; ++miss) {
    EXPECT_EQ(steps_until_asked(backoff), 1);
    backoff.record(false);
  }
  EXPECT_GT(steps_until_asked(backoff), 1);
}

}  // namespace
}  // namespace clover::infer
