#include "infer/tree/verify.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "kernels/vocabulary/sample.h"
#include "tests/infer/tree/stand_in_target.h"

namespace clover::infer {
namespace {

using kernels::SamplingRule;
using ::testing::ElementsAre;

constexpr int64_t vocab_size = 12;

// As target number `target` has them.
std::vector<float> next_logits(uint64_t target, const Path& path) {
  return logits_after(path, target, vocab_size, 2);
}

at::Tensor logits_of(const CandidateTree& tree, uint64_t model) {
  at::Tensor logits = at::empty({tree.size(), vocab_size});
  for (int32_t node = 0; node < tree.size(); ++node)
    logits[node] = at::tensor(next_logits(model, path_to(tree, node)));
  return logits;
}

CandidateTree random_candidates(std::mt19937_64& random, int64_t nodes) {
  CandidateTree tree = CandidateTree::of_root(int64_t(random() % vocab_size));
  for (int64_t tries = 0; tries < nodes; ++tries) {
    const int32_t parent = int32_t(random() % uint64_t(tree.size()));
    const int64_t id = int64_t(random() % vocab_size);
    bool taken = false;
    for (int32_t i = 1; i < tree.size(); ++i) taken |= tree.parent[i] == parent && tree.ids[i] == id;
    if (!taken) tree.add(id, parent, tree.proposed_probability[parent] * 0.5f);
  }
  return tree;
}

// Plain decoding: one token after another, no tree.
Path plain_chain(uint64_t model, int64_t root, int64_t length, const SamplingRule& rule, const RandomKey& key,
                 int64_t position) {
  Path path{root};
  for (int64_t i = 0; i < length; ++i) {
    const std::vector<float> logits = next_logits(model, path);
    const double uniform = kernels::philox_uniform(key.seed, key.request, 0, uint64_t(position + i));
    path.push_back(kernels::sample(logits.data(), vocab_size, rule, uniform));
  }
  return {path.begin() + 1, path.end()};
}

TEST(VerifyMatch, YieldsThePlainChainWhateverTheTree) {
  std::mt19937_64 random(7);
  const std::vector<SamplingRule> rules{{0, 1, 0}, {1, 1, 0}, {0.7, 0.8, 0}, {1.3, 1, 4}, {0.9, 0.9, 5}};
  int64_t longest = 0;
  for (int round = 0; round < 1500; ++round) {
    const uint64_t model = random();
    const SamplingRule& rule = rules[round % rules.size()];
    const RandomKey key{random(), random() % 100};
    const int64_t position = int64_t(random() % 5000);
    const CandidateTree tree = random_candidates(random, round % 60);
    const AcceptedPath accepted = verify_match(tree, logits_of(tree, model), rule, key, position);

    const int64_t length = std::ssize(accepted.tokens);
    EXPECT_EQ(accepted.tokens, plain_chain(model, tree.ids[0], length, rule, key, position));
    ASSERT_EQ(accepted.nodes.size(), accepted.tokens.size());
    ASSERT_EQ(accepted.nodes[0], 0);
    for (int64_t i = 1; i < length; ++i) {
      EXPECT_EQ(tree.parent[accepted.nodes[i]], accepted.nodes[i - 1]);
      EXPECT_EQ(tree.ids[accepted.nodes[i]], accepted.tokens[i - 1]);
    }
    // It stopped because the tree did not hold the bonus token, and for no other reason.
    for (int32_t i = 1; i < tree.size(); ++i)
      EXPECT_FALSE(tree.parent[i] == accepted.nodes.back() && tree.ids[i] == accepted.tokens.back());
    longest = std::max(longest, length);
  }
  EXPECT_GE(longest, 4);  // deep trees were really followed
}

TEST(VerifyMatch, TakesTheLowestTokenOfATie) {
  CandidateTree tree = CandidateTree::of_root(5);
  tree.add(3, 0, .5f);
  tree.add(2, 0, .5f);
  at::Tensor logits = at::zeros({3, 4});
  logits[0][2] = 1;
  logits[0][3] = 1;
  const AcceptedPath accepted = verify_match(tree, logits, {}, {}, 0);
  EXPECT_THAT(accepted.nodes, ElementsAre(0, 2));
  EXPECT_THAT(accepted.tokens, ElementsAre(2, 0));
}

TEST(VerifyMatch, RefusesLogitsOfAnotherTree) {
  EXPECT_THROW(verify_match(CandidateTree::of_root(0), at::zeros({2, 4}), {}, {}, 0), c10::Error);
  EXPECT_THROW(verify_match(CandidateTree::of_root(0), at::zeros({1, 4}, at::kDouble), {}, {}, 0),
               c10::Error);
}

// What temperature, then top-k, then top-p leave of a row.
std::vector<double> warped(const std::vector<float>& logits, const SamplingRule& rule) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (rule.top_k > 0) order.resize(std::min<size_t>(order.size(), size_t(rule.top_k)));
  std::vector<double> mass(logits.size(), 0.0);
  double sum = 0, kept = 0;
  for (const int64_t id : order) sum += std::exp(logits[id] / rule.temperature);
  for (const int64_t id : order) {
    if (kept >= rule.top_p) break;
    mass[id] = std::exp(logits[id] / rule.temperature) / sum;
    kept += mass[id];
  }
  for (double& share : mass) share /= kept;
  return mass;
}

// Upper 0.1 % point of chi-squared, by Wilson and Hilferty.
double rare(int64_t freedom) {
  const double k = 2.0 / (9.0 * double(freedom));
  return double(freedom) * std::pow(1 - k + 3.09 * std::sqrt(k), 3);
}

void expect_distribution(const std::vector<int64_t>& counts, const std::vector<double>& expected) {
  const double total = double(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double statistic = 0;
  int64_t freedom = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " lies outside what the rule keeps";
      continue;
    }
    const double off = double(counts[i]) - total * expected[i];
    statistic += off * off / (total * expected[i]);
    ++freedom;
  }
  ASSERT_GE(freedom, 1);
  EXPECT_LT(statistic, rare(freedom));
}

TEST(VerifyMatch, SamplesTheTargetsDistributionAtBothDepths) {
  const uint64_t model = 42;
  CandidateTree tree = CandidateTree::of_root(1);
  const Path best = plain_chain(model, 1, 1, {}, {}, 0);
  tree.add(best[0], 0, .5f);
  for (int64_t id = 0; id < 3; ++id) tree.add(id, 1, .1f);
  const at::Tensor logits = logits_of(tree, model);
  for (const SamplingRule& rule : {SamplingRule{1, 1, 0}, SamplingRule{0.6, 1, 0}, SamplingRule{1.5, 0.9, 0},
                                   SamplingRule{1.5, 1, 5}, SamplingRule{2, 0.8, 6}}) {
    std::vector<int64_t> first(vocab_size, 0), second(vocab_size, 0);
    for (uint64_t request = 0; request < 40000; ++request) {
      const AcceptedPath accepted = verify_match(tree, logits, rule, {2024, request}, int64_t(request % 17));
      ++first[accepted.tokens[0]];
      if (accepted.tokens[0] == best[0]) ++second[accepted.tokens[1]];
    }
    expect_distribution(first, warped(next_logits(model, {1}), rule));
    expect_distribution(second, warped(next_logits(model, {1, best[0]}), rule));
  }
}

// The rule of Medusa's paper by plain loops over every node.
AcceptedPath typical_by_loops(const CandidateTree& tree, uint64_t model, double temperature, double epsilon,
                              double delta) {
  std::vector<double> likelihood(tree.size(), -1e300);
  likelihood[0] = 0;
  int32_t last = 0;
  for (int32_t i = 1; i < tree.size(); ++i) {
    const int32_t parent = tree.parent[i];
    if (likelihood[parent] == -1e300) continue;
    const std::vector<double> p = warped(next_logits(model, path_to(tree, parent)), {temperature, 1, 0});
    double entropy = 0;
    for (const double share : p) entropy -= share * std::log(share + 1e-5);
    const double probability = p[tree.ids[i]];
    if (probability <= std::min(epsilon, delta * std::exp(-entropy))) continue;
    likelihood[i] = likelihood[parent] + std::log(probability);
    if (tree.depth[i] > tree.depth[last] ||
        (tree.depth[i] == tree.depth[last] && likelihood[i] > likelihood[last] + 1e-9))
      last = i;
  }
  AcceptedPath accepted;
  for (int32_t node = last; node >= 0; node = tree.parent[node])
    accepted.nodes.insert(accepted.nodes.begin(), node);
  for (size_t i = 1; i < accepted.nodes.size(); ++i) accepted.tokens.push_back(tree.ids[accepted.nodes[i]]);
  const std::vector<float> logits = next_logits(model, path_to(tree, last));
  accepted.tokens.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
  return accepted;
}

TEST(VerifyTypical, AgreesWithPlainLoops) {
  std::mt19937_64 random(11);
  size_t accepted_nodes = 0;
  for (int round = 0; round < 600; ++round) {
    const uint64_t model = random();
    const CandidateTree tree = random_candidates(random, round % 50);
    const double temperature = 0.4 + 0.2 * double(round % 5);
    const double epsilon = round % 2 ? 0.09 : 0.3, delta = round % 3 ? 0.3 : 0.6;
    const AcceptedPath expected = typical_by_loops(tree, model, temperature, epsilon, delta);
    const AcceptedPath found = verify_typical(tree, logits_of(tree, model), temperature, epsilon, delta);
    EXPECT_EQ(found.nodes, expected.nodes) << round;
    EXPECT_EQ(found.tokens, expected.tokens) << round;
    accepted_nodes += found.nodes.size() - 1;
  }
  EXPECT_GT(accepted_nodes, 300u);
}

TEST(VerifyTypical, IsGreedyMatchingAtTemperatureZero) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 200; ++round) {
    const uint64_t model = random();
    const CandidateTree tree = random_candidates(random, 50);
    const at::Tensor logits = logits_of(tree, model);
    const AcceptedPath match = verify_match(tree, logits, {}, {}, 0);
    const AcceptedPath typical = verify_typical(tree, logits, 0);
    EXPECT_EQ(typical.nodes, match.nodes);
    EXPECT_EQ(typical.tokens, match.tokens);
  }
}

// The token behind the accepted guesses: only such as would be accepted, each as often as the target says.
TEST(VerifyTypical, DrawsAmongWhatItWouldAccept) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> logits = next_logits(random(), {});
    const double temperature = 0.6 + 0.2 * double(round % 5);
    const std::vector<double> p = warped(logits, {temperature, 1, 0});
    double entropy = 0, accepted = 0;
    for (const double share : p) entropy -= share * std::log(share + 1e-5);
    const double threshold = std::min(0.09, 0.3 * std::exp(-entropy));
    for (const double share : p) accepted += share > threshold ? share : 0;
    std::vector<int> counted(vocab_size);
    constexpr int draws = 4000;
    for (int position = 0; position < draws; ++position)
      ++counted[typical_token(at::tensor(logits), {temperature, 1, 0}, {5, uint64_t(round)}, position)];
    for (int64_t id = 0; id < vocab_size; ++id) {
      const double expected = p[id] > threshold ? p[id] / accepted : 0;
      EXPECT_NEAR(counted[id] / double(draws), expected, expected == 0 ? 0 : 0.04)
          << round << ", token " << id;
    }
  }
  EXPECT_EQ(typical_token(at::full({vocab_size}, std::nan("")), {1, 1, 0}, {}, 0), -1);
  // So many tokens alike that each lies below the threshold.
  EXPECT_EQ(typical_token(at::zeros({1 << 21}), {1, 1, 0}, {}, 0), 0);
}

}  // namespace
}  // namespace clover::infer
