#include "infer/tree/growth_policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/input_error.h"

namespace clover::infer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GrowthPolicies, AreReadAndWrittenByNameAndRefuseOthers) {
  for (const char* name : {"auto", "off", "chain", "static", "clover", "beam", "best-first"})
    EXPECT_EQ(to_string(parse_policy(name)), name);
  for (const char* name : {"", "Clover", "beams"})
    EXPECT_THAT(test::input_error([&] { parse_policy(name); }),
                HasSubstr("choose auto, off, chain, static, clover, beam or best-first"));
}

TEST(GrowthPolicies, AreListedInTheOrderOfTheTable) {
  EXPECT_THAT(growth_policy_names(),
              ElementsAre("auto", "off", "chain", "static", "clover", "beam", "best-first"));
  EXPECT_EQ(growth_policies_help(),
            "auto (measures and chooses), off, chain, static, clover, beam, best-first");
  EXPECT_EQ(default_budgets_help(),
            "clover 4, best-first 60, chain its depth, others as many as there may be");
}

TEST(GrowthPolicies, OfEveryEnumeratorThereIsARow) {
  for (const Policy policy : {Policy::automatic, Policy::off, Policy::chain, Policy::fixed_tree,
                              Policy::clover, Policy::beam, Policy::best_first})
    EXPECT_EQ(growth_policy(policy).policy, policy);
  EXPECT_EQ(growth_policy(Policy::clover).default_budget, 4);
}

}  // namespace
}  // namespace clover::infer
