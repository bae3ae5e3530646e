#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "infer/tree/candidate_tree.h"
#include "kernels/vocabulary/sample.h"

// Verification of candidate trees on the CPU.  Where a GPU chooses the tokens, kernels/trees/verify_trees.h
// verifies the same trees there, so that the next draft can begin before the CPU has done so.  Both must
// accept the same nodes.
namespace clover::infer {

/// The key of one request's random numbers: the one at a position is kernels::philox_uniform of seed, request
/// and position.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t request = 0;
};

/// The uniform number in [0, 1) with which the token at `position` of the request is sampled.
double uniform_at(const RandomKey& key, int64_t position);

/// The accepted path of a tree.  nodes[0] is the root, every other node an accepted guess.  tokens[i] is the
/// target's token after nodes[i], so it is the id of nodes[i + 1].  The last token is the bonus token; -1
/// where the target's logits are NaN.
struct AcceptedPath {
  std::vector<int32_t> nodes;
  std::vector<int64_t> tokens;
};

/// Verification `match`: from the root, takes the target's own token after each node (arg-max, or sampled
/// with the random number of its position) and goes on to the child that holds it, until there is none.
/// Lossless at any temperature: the tokens do not depend on the tree.
///   logits    fp32 [N, V], row i for node i
///   position  of tokens[0] in the sequence
AcceptedPath verify_match(const CandidateTree& tree, const at::Tensor& logits,
                          const kernels::SamplingRule& rule, const RandomKey& key, int64_t position);

/// The same where the target's token after each node was chosen before: chosen [N].
AcceptedPath verify_chosen(const CandidateTree& tree, std::span<const int64_t> chosen);

/// Typical acceptance (Medusa, arXiv 2401.10774, section 2.3.1; lossy): a guess is accepted where the
/// target's probability of it exceeds min(epsilon, delta * exp(-entropy)), with the entropy of the target's
/// distribution.  Takes the longest accepted path, the most probable one of several; the bonus token is the
/// arg-max.
///   logits  fp32 [N, V], row i for node i
AcceptedPath verify_typical(const CandidateTree& tree, const at::Tensor& logits, double temperature,
                            double epsilon = 0.09, double delta = 0.3);

/// The bonus token of typical acceptance where the request samples: drawn under `rule`, at a temperature
/// above 0, among the tokens that typical acceptance allows after a node with `logits`, fp32 [V]; -1 where
/// these are NaN.
int64_t typical_token(const at::Tensor& logits, const kernels::SamplingRule& rule, const RandomKey& key,
                      int64_t position, double epsilon = 0.09, double delta = 0.3);

}  // namespace clover::infer
