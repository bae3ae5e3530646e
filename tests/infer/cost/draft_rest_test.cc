#include "infer/cost/draft_rest.h"

#include <gtest/gtest.h>

namespace clover::infer {
namespace {

// Steps until the heads are asked again, that one included.
int steps_until_asked(DraftRest& rest) {
  int steps = 1;
  while (!rest.over()) ++steps;
  return steps;
}

TEST(DraftRest, LastsEverLongerWhileGuessesAreNotWorthTheirRows) {
  DraftRest rest;
  for (int miss = 0; miss < 4; ++miss) {
    EXPECT_EQ(steps_until_asked(rest), 1) << miss;  // now and then nothing is worth it
    rest.note(false);
  }
  int before = 1;
  for (int look = 0; look < 10; ++look) {
    const int steps = steps_until_asked(rest);
    EXPECT_GE(steps, before);
    EXPECT_LE(steps, 64);
    before = steps;
    rest.note(false);
  }
  EXPECT_EQ(before, 64);
}

TEST(DraftRest, EndsWithOneGuessThatIs) {
  DraftRest rest;
  for (int miss = 0; miss < 8; ++miss) {
    steps_until_asked(rest);
    rest.note(false);
  }
  steps_until_asked(rest);
  rest.note(true);
  for (int miss = 0; miss < 4; ++miss) {
    EXPECT_EQ(steps_until_asked(rest), 1);
    rest.note(false);
  }
  EXPECT_GT(steps_until_asked(rest), 1);
}

}  // namespace
}  // namespace clover::infer
