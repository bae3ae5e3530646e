#include "infer/tree/suffix_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace clover::infer {
namespace {

using Ids = std::vector<int64_t>;

// The expected guess, by a search of the whole text.
SuffixMatcher::Guess by_search(const Ids& ids, int64_t most) {
  SuffixMatcher::Guess guess;
  const int64_t last = std::ssize(ids) - 1;
  int64_t best = -1;
  for (int64_t place = last - 1; place >= 1; --place) {
    int64_t match = 0;
    while (match < 32 && match <= place && ids[place - match] == ids[last - match]) ++match;
    if (match >= 2 && match > guess.match) guess.match = match, best = place;
  }
  for (int64_t i = best + 1; best >= 0 && i <= last && i <= best + most; ++i) guess.ids.push_back(ids[i]);
  return guess;
}

TEST(SuffixMatcher, FindsTheLongestLatestMatch) {
  SuffixMatcher matcher;
  matcher.append(Ids{1, 2, 3, 9, 4, 2, 3, 8, 7, 1, 2, 3});
  const SuffixMatcher::Guess guess = matcher.guess(3);
  EXPECT_EQ(guess.match, 3) << "1 2 3 at the beginning, not the later 2 3";
  EXPECT_EQ(guess.ids, (Ids{9, 4, 2}));
  matcher.append(Ids{5});
  EXPECT_TRUE(matcher.guess(3).ids.empty()) << "3 5 never stood together";
}

TEST(SuffixMatcher, AgreesWithASearchOfTheWholeText) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    SuffixMatcher matcher;
    Ids ids;
    for (int i = 0; i < 120; ++i) {
      ids.push_back(int64_t(random() % (2 + uint64_t(round) % 6)));
      matcher.append({&ids.back(), 1});
      const auto expected = by_search(ids, 5), found = matcher.guess(5);
      ASSERT_EQ(found.match, expected.match);
      ASSERT_EQ(found.ids, expected.ids);
    }
  }
}

TEST(AnswerMatcher, CopiesFromOneAnswerAtATime) {
  AnswerMatcher answers;
  answers.append(Ids{5, 6, 7, 8});
  answers.append(Ids{9, 6, 7, 1, 2});
  const Ids text{4, 5, 6, 7};
  EXPECT_EQ(answers.guess_after(text, 8).ids, (Ids{8}))
      << "5 6 7 of the first answer, and not beyond its end";
  EXPECT_EQ(answers.guess_after(Ids{6, 7}, 8).ids, (Ids{1, 2})) << "the latest";
  EXPECT_TRUE(answers.guess_after(Ids{7, 8}, 8).ids.empty());
  answers.append(Ids{4, 5, 6, 7});
  EXPECT_EQ(answers.guess_after(text, 8).ids, (Ids{8})) << "a longer match that nothing follows is none";
  for (int i = 0; i < 40; ++i) answers.append(Ids(40'000, 3));
  EXPECT_TRUE(answers.guess_after(text, 8).ids.empty()) << "forgotten by now";
}

TEST(SuffixMatcher, GraftsAlongWhatTheTreeAlreadySays) {
  CandidateTree tree = CandidateTree::of_root(3);
  const int32_t first = tree.add(9, 0, 0.7f);
  tree.add(8, 0, 0.2f);
  add_guess(tree, {{9, 4, 2}, 3});
  ASSERT_EQ(tree.size(), 5);
  EXPECT_EQ(tree.parent[3], first);
  EXPECT_EQ(tree.ids[4], 2);
  EXPECT_EQ(tree.proposer[4], Proposer::suffix);
  EXPECT_EQ(tree.proposer[first], Proposer::heads);
  EXPECT_LT(tree.proposed_probability[4], tree.proposed_probability[3]);
  add_guess(tree, {{9, 4, 2}, 3});
  EXPECT_EQ(tree.size(), 5) << "nothing new";
  add_guess(tree, {});
  EXPECT_EQ(tree.size(), 5);
}

}  // namespace
}  // namespace clover::infer
