#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "infer/tree/candidate_tree.h"
#include "kernels/vocabulary/sample.h"

namespace clover::infer {

/// Randomness of one request: Philox(seed, request, choice 0, position).
struct RandomKey {
  uint64_t seed = 0;
  uint64_t request = 0;
};

/// The number in [0, 1) that decides the token at a logical position of the request.
double uniform_at(const RandomKey& key, int64_t position);

/// The target's own tokens along the tree: nodes[0] is the root, each further node an accepted guess;
/// tokens[i] is what the target says after nodes[i], so that tokens[i] is the id of nodes[i + 1] and the last
/// one is the bonus: -1 where the target's logits are no numbers.
struct Accepted {
  std::vector<int32_t> nodes;
  std::vector<int64_t> tokens;
};

/// `match`: at each node takes the target's own token (arg-max, or drawn with the randomness of its position)
/// and follows it while the tree holds it.  Exact at any temperature: tokens do not depend on the tree.
///   logits fp32 [N, V], row i for node i; position: logical position of the root's successor, i.e. of
///   tokens[0]
Accepted verify_match(const CandidateTree& tree, const at::Tensor& logits, const kernels::SamplingRule& rule,
                      const RandomKey& key, int64_t position);

/// The same where the target's token after each node has been chosen already: chosen [N].
Accepted verify_chosen(const CandidateTree& tree, std::span<const int64_t> chosen);

/// `typical` (Medusa's, lossy): a guess is accepted when the target's probability of it
/// exceeds min(epsilon, delta * exp(-entropy)); the longest accepted path, ties to the likelier; the bonus is
/// the arg-max, as published by default.
Accepted verify_typical(const CandidateTree& tree, const at::Tensor& logits, double temperature,
                        double epsilon = 0.09, double delta = 0.3);

/// The bonus where seeds are to count, as published for sampling: drawn under `rule`, at a temperature above
/// 0, among the tokens that would be accepted after `logits` fp32 [V]; -1 where these are no numbers.
int64_t typical_token(const at::Tensor& logits, const kernels::SamplingRule& rule, const RandomKey& key,
                      int64_t position, double epsilon = 0.09, double delta = 0.3);

}  // namespace clover::infer
