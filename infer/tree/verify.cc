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

/// Follows the tree from its root.  `choose(node, depth)` returns the token after a node; the path goes on to
/// the child that holds it, and ends where there is none.
template <class Choose>
AcceptedPath follow(const CandidateTree& tree, const Choose& choose) {
  AcceptedPath accepted;
  for (int32_t node = 0; node >= 0;) {
    const int64_t token = choose(node, accepted.tokens.size());
    accepted.nodes.push_back(node);
    accepted.tokens.push_back(token);
    node = tree.child(node, token);
  }
  return accepted;
}

// Typical acceptance of the children of one node: those whose probability exceeds the threshold.
struct Acceptance {
  at::Tensor probabilities;  // fp32 [V]
  double threshold = 0;
};

/// `logits`: fp32 [V].
Acceptance acceptance_after(const at::Tensor& logits, double temperature, double epsilon, double delta) {
  if (temperature <= 0) {  // the limit of low temperature: probability 1 for the arg-max, entropy 0
    at::Tensor one_hot = at::zeros_like(logits);
    const int64_t best = kernels::arg_max(logits.unsqueeze(0)).item<int64_t>();
    if (best >= 0) one_hot[best] = 1.0;
    return {one_hot, std::min(epsilon, delta)};
  }
  const at::Tensor probabilities = (logits / temperature).softmax(0);
  const double entropy = -(probabilities * (probabilities + 1e-5).log()).sum().item<double>();
  return {probabilities, std::min(epsilon, delta * std::exp(-entropy))};
}

}  // namespace

double uniform_at(const RandomKey& key, int64_t position) {
  return kernels::philox_uniform(key.seed, key.request, 0, static_cast<uint64_t>(position));
}

AcceptedPath verify_match(const CandidateTree& tree, const at::Tensor& logits,
                          const kernels::SamplingRule& rule, const RandomKey& key, int64_t position) {
  check(tree, logits);
  const int64_t vocab = logits.size(1);
  return follow(tree, [&](int32_t node, size_t depth) {
    const double uniform = uniform_at(key, position + static_cast<int64_t>(depth));
    return kernels::sample(logits.const_data_ptr<float>() + node * vocab, vocab, rule, uniform);
  });
}

AcceptedPath verify_chosen(const CandidateTree& tree, std::span<const int64_t> chosen) {
  TORCH_CHECK(std::ssize(chosen) == tree.size(), "verify: the tokens after ", tree.size(),
              " rows expected, found ", chosen.size());
  return follow(tree, [&](int32_t node, size_t) { return chosen[node]; });
}

AcceptedPath verify_typical(const CandidateTree& tree, const at::Tensor& logits, double temperature,
                            double epsilon, double delta) {
  check(tree, logits);
  std::vector<Acceptance> acceptance(tree.size());
  std::vector<char> accepts(tree.size(), 0);
  std::vector<double> log_probability(tree.size(), 0);  // sum of log-probabilities along the path
  accepts[0] = 1;
  int32_t last = 0;
  for (int32_t i = 1; i < tree.size(); ++i) {
    const int32_t parent = tree.parent[i];
    if (!accepts[parent]) continue;
    Acceptance& child_acceptance = acceptance[parent];
    if (!child_acceptance.probabilities.defined())
      child_acceptance = acceptance_after(logits[parent], temperature, epsilon, delta);
    const double probability = child_acceptance.probabilities[tree.ids[i]].item<double>();
    accepts[i] = probability > child_acceptance.threshold;
    if (!accepts[i]) continue;
    log_probability[i] = log_probability[parent] + std::log(probability);
    const bool longer = tree.depth[i] > tree.depth[last];
    if (longer || (tree.depth[i] == tree.depth[last] && log_probability[i] > log_probability[last])) last = i;
  }

  AcceptedPath accepted;
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
  const Acceptance acceptance = acceptance_after(logits, rule.temperature, epsilon, delta);
  at::Tensor acceptable = logits.masked_fill(acceptance.probabilities <= acceptance.threshold,
                                             -std::numeric_limits<float>::infinity());
  acceptable[best] = logits[best];  // where all tokens are equally probable, none may exceed the threshold
  return kernels::sample(acceptable.const_data_ptr<float>(), acceptable.size(0), rule,
                         uniform_at(key, position));
}

}  // namespace clover::infer
