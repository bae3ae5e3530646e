#include "model/graphs/guesses.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/linear/linear.h"
#include "kernels/vocabulary/top_k.h"
#include "model/graphs/captured_sizes.h"

namespace clover::model {
namespace {

// Logits are computed for so many rows at a time: those of a large batch would take hundreds of megabytes.
constexpr int64_t max_rows_at_once = max_captured_rows;

/// The guesses at F rows.  `input` [F, D], in the head's dtype: what the head's product multiplies.
Guesses guesses_of(const OutputHead& head, const at::Tensor& input, int64_t width, int64_t softmax_over) {
  at::Tensor logits = at::empty({input.size(0), head.outputs}, input.options().dtype(at::kFloat));
  kernels::linear(input, head.packed, head.bias, logits);
  if (softmax_over == 0) {
    const auto [best_logits, ids, log_sums] = kernels::top_k_and_log_sum(logits, width, head.token_map);
    return {best_logits, ids, log_sums};
  }
  const auto [best_logits, ids] =
      kernels::top_k(logits, std::min(softmax_over, head.outputs), head.token_map);
  return {best_logits, ids, kernels::log_sum_exp(best_logits)};
}

}  // namespace

Guesses guesses_of(Drafter& drafter, const DraftState& state, int64_t width, int64_t softmax_over) {
  const OutputHead& head = drafter.head(state.depth);
  const at::Tensor input = drafter.head_input(state).to(head.packed.dtype()).contiguous();
  if (input.size(0) <= max_rows_at_once) return guesses_of(head, input, width, softmax_over);
  std::vector<at::Tensor> logits, ids, log_sums;
  for (int64_t begin = 0; begin < input.size(0); begin += max_rows_at_once) {
    const at::Tensor part = input.slice(0, begin, std::min(input.size(0), begin + max_rows_at_once));
    Guesses guesses = guesses_of(head, part, width, softmax_over);
    logits.push_back(std::move(guesses.logits));
    ids.push_back(std::move(guesses.ids));
    log_sums.push_back(std::move(guesses.log_sums));
  }
  return {at::cat(logits), at::cat(ids), at::cat(log_sums)};
}

}  // namespace clover::model
