#include "infer/tree/verify.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/vocabulary/top_k.h"

namespace clover::infer {
namespace {

void check(const CandidateTree& tree, const at::Tensor& logits) {
  TORCH_CHECK(logits.dim() == 2 && logits.size(0) == tree.size() && logits.scalar_type() == at::kFloat &&
                  logits.is_contiguous() && logits.is_cpu(),
              "verify: contiguous fp32 logits [", tree.size(), ", V] on the CPU expected, found ",
              logits.sizes());
}

/// Follows the tree from its root while it holds the token that `choose(node, depth)` returns for each node.
template <class Choose>
Accepted follow(const CandidateTree& tree, const Choose& choose) {
  Accepted accepted;
  for (int32_t node = 0; node >= 0;) {
    const int64_t token = choose(node, accepted.tokens.size());
    accepted.nodes.push_back(node);
    accepted.tokens.push_back(token);
    node = tree.child(node, token);
  }
  return accepted;
}

// How the children of one node are accepted.
struct Acceptance {
  at::Tensor probabilities;  // fp32 [V]
  double threshold = 0;
};

Acceptance acceptance_after(const at::Tensor& logits, double temperature, double epsilon, double delta) {
  if (temperature <= 0) {  // the limit of low temperature: probability 1 for the arg-max, entropy 0
    at::Tensor certain = at::zeros_like(logits);
    const int64_t best = kernels::arg_max(logits.unsqueeze(0)).item<int64_t>();
    if (best >= 0) certain[best] = 1.0;
    return {certain, std::min(epsilon, delta)};
  }
  const at::Tensor probabilities = (logits / temperature).softmax(0);
  const double entropy = -(probabilities * (probabilities + 1e-5).log()).sum().item<double>();
  return {probabilities, std::min(epsilon, delta * std::exp(-entropy))};
}

}  // namespace

double uniform_at(const RandomKey& key, int64_t position) {
  return kernels::philox_uniform(key.seed, key.request, 0, static_cast<uint64_t>(position));
}

Accepted verify_match(const CandidateTree& tree, const at::Tensor& logits, const kernels::SamplingRule& rule,
                      const RandomKey& key, int64_t position) {
  check(tree, logits);
  const int64_t vocab = logits.size(1);
  return follow(tree, [&](int32_t node, size_t depth) {
    const double uniform = uniform_at(key, position + static_cast<int64_t>(depth));
    return kernels::sample(logits.const_data_ptr<float>() + node * vocab, vocab, rule, uniform);
  });
}

Accepted verify_chosen(const CandidateTree& tree, std::span<const int64_t> chosen) {
  TORCH_CHECK(std::ssize(chosen) == tree.size(), "verify: the tokens after ", tree.size(),
              " rows expected, found ", chosen.size());
  return follow(tree, [&](int32_t node, size_t) { return chosen[node]; });
}

Accepted verify_typical(const CandidateTree& tree, const at::Tensor& logits, double temperature,
                        double epsilon, double delta) {
  check(tree, logits);
  std::vector<Acceptance> acceptance(tree.size());
  std::vector<char> accepts(tree.size(), 0);
  std::vector<double> likelihood(tree.size(), 0);  // sum of log-probabilities along the path
  accepts[0] = 1;
  int32_t last = 0;
  for (int32_t i = 1; i < tree.size(); ++i) {
    const int32_t parent = tree.parent[i];
    if (!accepts[parent]) continue;
    Acceptance& by_target = acceptance[parent];
    if (!by_target.probabilities.defined())
      by_target = acceptance_after(logits[parent], temperature, epsilon, delta);
    const double probability = by_target.probabilities[tree.ids[i]].item<double>();
    accepts[i] = probability > by_target.threshold;
    if (!accepts[i]) continue;
    likelihood[i] = likelihood[parent] + std::log(probability);
    const bool longer = tree.depth[i] > tree.depth[last];
    if (longer || (tree.depth[i] == tree.depth[last] && likelihood[i] > likelihood[last])) last = i;
  }

  Accepted accepted;
  accepted.tokens.push_back(kernels::arg_max(logits[last].unsqueeze(0)).item<int64_t>());
  for (int32_t node = last; node >= 0; node = tree.parent[node]) {
    accepted.nodes.push_back(node);
    if (node > 0) accepted.tokens.push_back(tree.ids[node]);
  }
  std::reverse(accepted.nodes.begin(), accepted.nodes.end());
  std::reverse(accepted.tokens.begin(), accepted.tokens.end());
  return accepted;
}

int64_t typical_token(const at::Tensor& logits, const kernels::SamplingRule& rule, const RandomKey& key,
                      int64_t position, double epsilon, double delta) {
  const int64_t best = kernels::arg_max(logits.unsqueeze(0)).item<int64_t>();
  if (best < 0) return best;
  const Acceptance by_target = acceptance_after(logits, rule.temperature, epsilon, delta);
  at::Tensor left = logits.masked_fill(by_target.probabilities <= by_target.threshold,
                                       -std::numeric_limits<float>::infinity());
  left[best] = logits[best];  // the only one left where a million tokens are equally likely
  return kernels::sample(left.const_data_ptr<float>(), left.size(0), rule, uniform_at(key, position));
}

}  // namespace clover::infer
