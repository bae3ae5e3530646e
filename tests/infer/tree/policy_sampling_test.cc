// Under every growth policy sampled tokens have the target's distribution, because the nodes of a tree depend
// only on tokens from before the step and not on those that the step draws.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "infer/tree/grow.h"
#include "infer/tree/verify.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/draft_runner.h"
#include "model/graphs/graph_runner.h"
#include "tests/infer/engine/scripted_drafter.h"
#include "tests/infer/tree/stand_in_target.h"

namespace clover::infer {
namespace {

constexpr int64_t small_vocab = 5;

/// Model 1 is the drafter, model 2 the target.
std::vector<float> say(uint64_t model, const Path& text) {
  return logits_after(text, model, small_vocab, 1);
}

std::vector<double> probabilities(const std::vector<float>& logits, double temperature) {
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) sum += shares.emplace_back(std::exp(logit / temperature));
  for (double& share : shares) share /= sum;
  return shares;
}

/// The tree that grows after a text, and the target's logits [N, small_vocab] at its nodes.
struct Step {
  CandidateTree tree;
  at::Tensor logits;
};

Step step_behind(const Path& text, Policy policy) {
  ScriptedDrafter drafter(small_vocab, 3, [&text](const ScriptedDrafter::Path& path) {
    Path all = text;
    all.insert(all.end(), path.begin() + 1, path.end());
    return say(1, all);
  });
  drafter.sequences = {0};
  model::KvCache cache({1, 1, 8, at::kFloat, {1, 1, 1, 1}}, 1, 1);
  model::GraphRunner graph_runner(at::kCPU, true);
  model::DraftRunner draft(drafter, cache, 0, graph_runner);
  const GrowthLimit limit{6, 3};
  Step step{grow(draft, {{model::Features{}}, {text.back()}, {{0, 0, 1}}}, {policy}, {&limit, 1})[0], {}};
  step.logits = at::empty({step.tree.size(), small_vocab});
  for (int32_t node = 0; node < step.tree.size(); ++node) {
    Path behind;
    for (int32_t at = node; at > 0; at = step.tree.parent[at])
      behind.insert(behind.begin(), step.tree.ids[at]);
    behind.insert(behind.begin(), text.begin(), text.end());
    step.logits[node] = at::tensor(say(2, behind));
  }
  return step;
}

TEST(EveryPolicy, SamplesTheTargetsDistribution) {
  const kernels::SamplingRule rule{0.8, 1, 0};
  constexpr int64_t requests = 20000, length = 3;
  for (const GrowthPolicy& policy : growth_policies) {
    SCOPED_TRACE(policy.name);
    std::map<Path, Step> steps;
    std::map<Path, int64_t> counts;
    int64_t accepted_guesses = 0;
    for (uint64_t request = 0; request < requests; ++request) {
      Path text{1};
      while (std::ssize(text) <= length) {
        auto known = steps.find(text);
        if (known == steps.end()) known = steps.emplace(text, step_behind(text, policy.policy)).first;
        const AcceptedPath accepted =
            verify_match(known->second.tree, known->second.logits, rule, {39, request}, std::ssize(text));
        accepted_guesses += std::ssize(accepted.nodes) - 1;
        text.insert(text.end(), accepted.tokens.begin(), accepted.tokens.end());
      }
      text.resize(1 + length);
      ++counts[text];
    }
    double statistic = 0;
    int64_t freedom = -1;
    for (int64_t cell = 0; cell < small_vocab * small_vocab * small_vocab; ++cell) {
      Path text{1};
      double expected = requests;
      for (const int64_t id :
           {cell / (small_vocab * small_vocab), cell / small_vocab % small_vocab, cell % small_vocab}) {
        expected *= probabilities(say(2, text), rule.temperature)[id];
        text.push_back(id);
      }
      const double off = static_cast<double>(counts[text]) - expected;
      statistic += off * off / expected;
      ++freedom;
    }
    // Upper 0.1 % point of chi-squared, by Wilson and Hilferty.
    const double k = 2.0 / (9.0 * static_cast<double>(freedom));
    EXPECT_LT(statistic, static_cast<double>(freedom) * std::pow(1 - k + 3.09 * std::sqrt(k), 3));
    EXPECT_EQ(accepted_guesses > requests / 10, policy.drafts) << accepted_guesses;
  }
}

}  // namespace
}  // namespace clover::infer
