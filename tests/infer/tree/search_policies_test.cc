// The growth policies beam and best-first, compared with plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>

#include "tests/infer/tree/scripted_growth.h"

namespace clover::infer {
namespace {

using ::testing::ElementsAre;
using namespace scripted;

// A node of a search by plain loops, with its path and score.
struct Scored {
  Path path;  // sequence number first
  double log = 0;
};

/// The best `width` children of a node, best first.  Probabilities are renormalised over the `among` best
/// guesses.
std::vector<Scored> children_of(const Scored& node, const ScriptedDrafter::Script& script,
                                const std::vector<int64_t>& allowed, int64_t width, int64_t among) {
  const std::vector<float> logits = script(node.path);
  std::vector<int64_t> order = softmax_of(logits, allowed).order;
  if (std::ssize(order) > among) order.resize(among);
  double sum = 0;
  for (const int64_t id : order) sum += std::exp(double(logits[id]));
  std::vector<Scored> children;
  for (const int64_t id : order) {
    if (std::ssize(children) == width) break;
    Scored child{node.path, node.log + logits[id] - std::log(sum)};
    child.path.push_back(id);
    children.push_back(std::move(child));
  }
  return children;
}

/// Keeps the `most` best nodes; of equal scores the earlier nodes.
void keep_best(std::vector<Scored>& nodes, int64_t most) {
  std::ranges::stable_sort(nodes, [](const Scored& a, const Scored& b) { return a.log > b.log; });
  if (std::ssize(nodes) > most) nodes.resize(most);
}

/// The paths to all nodes of `tree` except the root, with their probabilities.
std::map<Path, double> paths_of(const CandidateTree& tree, int64_t sequence) {
  std::map<Path, double> paths;
  for (int32_t node = 1; node < tree.size(); ++node) {
    const bool first = paths.emplace(path_to(tree, node, sequence), tree.proposed_probability[node]).second;
    EXPECT_TRUE(first) << "a path stands twice";
  }
  return paths;
}

void expect_paths(const std::map<Path, double>& expected, const std::map<Path, double>& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (const auto& [path, probability] : expected) {
    const auto same = found.find(path);
    ASSERT_NE(same, found.end());
    ASSERT_NEAR(same->second, probability, 1e-4 * probability + 1e-9);
  }
}

GrowthRule sized(Policy policy, int64_t width, int64_t length = 0) {
  GrowthRule rule{policy};
  rule.width = width;
  rule.depth = length;
  return rule;
}

// drafters.md 12.2: what beams have in common stands in the tree once, and a beam that dies (token 9) leaves
// nothing.
TEST(GrowBeam, PacksBeamsWithCommonBeginnings) {
  ScriptedDrafter drafter(10, 3,
                          from_table(10, {{{0}, {0, .6, 0, 0, 0, .35, 0, 0, 0, .05}},
                                          {{0, 1}, {0, 0, 1}},
                                          {{0, 5}, {0, 0, 1}},
                                          {{0, 9}, {0, 0, 1}},
                                          {{0, 1, 2}, {0, 0, 0, .5, .45, .05}},
                                          {{0, 5, 2}, {0, 0, 0, .8, .1, .1}},
                                          {{0, 9, 2}, {0, 0, 0, 1}},
                                          {{1}, {0, .5, .3, .2}},
                                          {{1, 1}, {0, 1}},
                                          {{1, 2}, {0, 1}},
                                          {{1, 3}, {0, 1}},
                                          {{1, 1, 1}, {0, 1}},
                                          {{1, 2, 1}, {0, 1}},
                                          {{1, 3, 1}, {0, 1}}}));
  const std::vector<int64_t> roots{7, 8};
  const std::vector<GrowthLimit> limits{{255, 9}, {255, 9}};
  const auto trees = grown(drafter, {0, 1}, roots, sized(Policy::beam, 3), limits);
  EXPECT_THAT(trees[0].ids, ElementsAre(7, 1, 5, 2, 2, 3, 3, 4));  // the likeliest beam is 5 2 3, by .35 * .8
  EXPECT_THAT(trees[0].parent, ElementsAre(-1, 0, 0, 1, 2, 3, 4, 3));
  EXPECT_THAT(trees[0].depth, ElementsAre(0, 1, 1, 2, 2, 3, 3, 3));
  EXPECT_THAT(trees[1].ids, ElementsAre(8, 1, 2, 3, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(trees[1].parent, ElementsAre(-1, 0, 0, 0, 1, 2, 3, 4, 5, 6));
}

TEST(GrowBeam, FindsTheBeamsOfAPlainSearch) {
  std::mt19937_64 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const int64_t vocab = draw(2, 90), width = draw(1, round % 4 == 0 ? 64 : 8), length = draw(1, 6);
    const bool autoregressive = draw(0, 3) > 0;
    const auto random_logits = random_script(vocab, 1000 + round);
    ScriptedDrafter drafter(vocab, 6, random_logits, {}, autoregressive);
    const auto script = [&](Path path) {
      if (!autoregressive) std::fill(path.begin() + 1, path.end(), -1);
      return random_logits(path);
    };
    const int64_t root = 1, budget = round % 3 == 0 ? draw(1, 20) : 255;
    const GrowthLimit limit{budget, draw(1, 7)};
    const auto tree = grown(drafter, {3}, {&root, 1}, sized(Policy::beam, width, length), {&limit, 1})[0];
    std::vector<Scored> beams{{{3}}};
    for (int64_t level = 0; level < std::min(length, limit.max_depth); ++level) {
      std::vector<Scored> next;
      for (const Scored& beam : beams)
        std::ranges::move(children_of(beam, script, every_id(vocab), width, 50), std::back_inserter(next));
      keep_best(next, width);
      beams = std::move(next);
    }
    std::map<Path, double> expected;
    for (const Scored& beam : beams) {
      Scored at{{3}};
      for (size_t i = 1; i < beam.path.size(); ++i) {
        for (const Scored& child : children_of(at, script, every_id(vocab), vocab, 50)) {
          if (child.path.back() != beam.path[i]) continue;
          at = child;
          break;
        }
        expected[at.path] = std::exp(at.log);
      }
    }
    const auto found = paths_of(tree, 3);
    if (std::ssize(expected) <= budget) {
      ASSERT_NO_FATAL_FAILURE(expect_paths(expected, found));
      continue;
    }
    // Cut to the likeliest.
    ASSERT_EQ(std::ssize(found), budget);
    double least = 1;
    for (const auto& [path, probability] : found) {
      ASSERT_TRUE(expected.contains(path));
      least = std::min(least, probability);
    }
    for (const auto& [path, probability] : expected) {
      if (probability > least * 1.001) {
        ASSERT_TRUE(found.contains(path));
      }
    }
  }
}

// EAGLE-2 with its flat list of candidates: every one of every level is kept until the end.
TEST(GrowBestFirst, VerifiesTheBestOfAllThatTheLikeliestNodesLeadTo) {
  std::mt19937_64 random(9);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const int64_t vocab = draw(2, 40), width = round % 5 == 0 ? 10 : draw(1, 12), depth = draw(1, 7);
    const auto script = random_script(vocab, 2000 + round);
    ScriptedDrafter drafter(vocab, depth, script);
    const int64_t root = 1;
    const GrowthLimit limit{draw(1, 80), draw(1, 8)};
    const auto tree = grown(drafter, {4}, {&root, 1}, sized(Policy::best_first, width), {&limit, 1})[0];
    std::vector<Scored> all, live{{{4}}};
    for (int64_t level = 0; level < std::min(depth, limit.max_depth); ++level) {
      std::vector<Scored> candidates;
      for (const Scored& node : live)
        std::ranges::move(children_of(node, script, every_id(vocab), width, vocab),
                          std::back_inserter(candidates));
      all.insert(all.end(), candidates.begin(), candidates.end());
      keep_best(candidates, width);
      live = std::move(candidates);
    }
    keep_best(all, limit.budget);
    std::map<Path, double> expected;
    for (const Scored& node : all) expected[node.path] = std::exp(node.log);
    ASSERT_NO_FATAL_FAILURE(expect_paths(expected, paths_of(tree, 4)));
  }
}

// drafters.md 12.3: of the four nodes of level 2 the third and the first live, in this order.
TEST(GrowBestFirst, FollowsTheParentsOfEaglesFlatList) {
  ScriptedDrafter drafter(4, 3,
                          from_table(4, {{{0}, {.5, .4, .1}},
                                         {{0, 0}, {.6, .2, .2}},
                                         {{0, 1}, {.9, .1}},
                                         {{0, 1, 0}, {.7, .2, .1}},
                                         {{0, 0, 0}, {.5, .3, .2}}}));
  const int64_t root = 0;
  const GrowthLimit limit{60, 3};
  const auto tree = grown(drafter, {0}, {&root, 1}, sized(Policy::best_first, 2), {&limit, 1})[0];
  EXPECT_THAT(tree.ids, ElementsAre(0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_THAT(tree.parent, ElementsAre(-1, 0, 0, 2, 1, 1, 2, 3, 4, 4, 3));
}

}  // namespace
}  // namespace clover::infer
