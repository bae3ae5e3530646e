#include "model/graphs/guesses.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "kernels/linear/linear.h"
#include "kernels/vocabulary/top_k.h"
#include "model/graphs/graph_runner.h"

namespace clover::model {
namespace {

// Rows whose logits exist at a time: all rows of a large batch would take hundreds of megabytes.
constexpr int64_t rows_at_once = most_captured_rows;

/// The guesses at rows `input`, [F, D] of the head's dtype, on their device.
Guesses guesses_of(const OutputHead& head, const at::Tensor& input, int64_t width) {
  at::Tensor logits = at::empty({input.size(0), head.size()}, input.options().dtype(at::kFloat));
  kernels::linear(input, head.packed, head.bias, logits);
  const auto [best, ids, log_sums] = kernels::top_k_and_log_sum(logits, width, head.token_map);
  return {best, ids, log_sums};
}

}  // namespace

Guesses guesses_of(Drafter& drafter, const DraftState& state, int64_t width) {
  const OutputHead& head = drafter.head(state.depth);
  const at::Tensor input = drafter.output(state).to(head.packed.dtype()).contiguous();
  if (input.size(0) <= rows_at_once) return guesses_of(head, input, width);
  std::vector<at::Tensor> logits, ids, log_sums;
  for (int64_t begin = 0; begin < input.size(0); begin += rows_at_once) {
    const at::Tensor part = input.slice(0, begin, std::min(input.size(0), begin + rows_at_once));
    Guesses guesses = guesses_of(head, part, width);
    logits.push_back(std::move(guesses.logits));
    ids.push_back(std::move(guesses.ids));
    log_sums.push_back(std::move(guesses.log_sums));
  }
  return {at::cat(logits), at::cat(ids), at::cat(log_sums)};
}

at::Tensor packed(const Guesses& guesses) {
  return at::cat({guesses.ids.view(at::kByte), guesses.logits.view(at::kByte),
                  guesses.log_sums.unsqueeze(1).view(at::kByte)},
                 1);
}

Guesses unpacked(const at::Tensor& packed, int64_t rows) {
  if (rows == 0) return {};
  const at::Tensor here = kernels::to_host({packed.narrow(0, 0, rows)})[0];
  const int64_t width = (here.size(1) - 4) / 12;
  const auto part = [&](int64_t begin, int64_t bytes, at::ScalarType dtype) {
    at::Tensor own = at::empty({rows, bytes / static_cast<int64_t>(c10::elementSize(dtype))}, dtype);
    own.view(at::kByte).copy_(here.narrow(1, begin, bytes));
    return own;
  };
  return {part(8 * width, 4 * width, at::kFloat), part(0, 8 * width, at::kLong),
          part(12 * width, 4, at::kFloat).squeeze(1)};
}

}  // namespace clover::model
