#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "infer/tree/candidate_tree.h"
#include "kernels/vocabulary/sample.h"

// Verification on the CPU.  Where the tokens are chosen on a GPU, kernels/trees/verify_trees.h follows the
// same trees there and must accept the same rows, so that the next draft can begin before the CPU has
// verified this pass.
namespace clover::infer {

/// Randomness of one request: Philox(seed, request, choice 0, position).
struct RandomKey {
  uint64_t seed = 0;
  uint64_t request = 0;
};

/// The uniform number in [0, 1) that samples the token at a position of the request.
double uniform_at(const RandomKey& key, int64_t position);

/// The accepted path of a tree: nodes[0] is the root, each further node an accepted guess.  tokens[i] is the
/// target's token after nodes[i], so it is the id of nodes[i + 1]; the last one is the bonus token, -1 where
/// the target's logits are no numbers.
struct Accepted {
  std::vector<int32_t> nodes;
  std::vector<int64_t> tokens;
};

/// `match`: at each node takes the target's own token (arg-max, or sampled with the randomness of its
/// position) and follows it while the tree holds it.  Lossless at any temperature: tokens do not depend on
/// the tree.
///   logits fp32 [N, V], row i for node i; position: that of tokens[0]
Accepted verify_match(const CandidateTree& tree, const at::Tensor& logits, const kernels::SamplingRule& rule,
                      const RandomKey& key, int64_t position);

/// The same where the target's token after each node is known already: chosen [N].
Accepted verify_chosen(const CandidateTree& tree, std::span<const int64_t> chosen);

/// Typical acceptance (Medusa, arXiv 2401.10774, section 2.3.1; lossy): a guess is accepted where the
/// target's probability of it exceeds min(epsilon, delta * exp(-entropy)).  Takes the longest accepted path,
/// of several the most probable one; the bonus token is the arg-max.
Accepted verify_typical(const CandidateTree& tree, const at::Tensor& logits, double temperature,
                        double epsilon = 0.09, double delta = 0.3);

/// The bonus token of typical acceptance where the request samples: drawn under `rule`, at a temperature
/// above 0, among the tokens that would be accepted after `logits` fp32 [V]; -1 where these are no numbers.
int64_t typical_token(const at::Tensor& logits, const kernels::SamplingRule& rule, const RandomKey& key,
                      int64_t position, double epsilon = 0.09, double delta = 0.3);

}  // namespace clover::infer
