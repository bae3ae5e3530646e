#include "train/objective/rollout.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <vector>

#include "kernels/gpu/gpu.h"

namespace clover::train {
namespace {

/// The indices of the rows of `next`, the head at `depth`, that are fed the drafter's own guess: i64 on the
/// CPU.
at::Tensor rows_with_own_guess(const HeadLabels& next, int64_t depth, const Feed& feed) {
  const int64_t* sample = next.sample.const_data_ptr<int64_t>();
  const int64_t* t = next.t.const_data_ptr<int64_t>();
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < next.sample.numel(); ++row) {
    if (feed.own_guess_share >= 1 ||
        feed.draws.uniform(Draws::Purpose::feed, sample[row], t[row], depth) < feed.own_guess_share)
      rows.push_back(row);
  }
  return at::tensor(rows, at::kLong);
}

/// The token ids, i64 [F], that the rows of `next`, the head at `depth`, are fed.  `state`: of the depth
/// before.
at::Tensor fed_ids(model::Drafter& drafter, const model::DraftState& state, const HeadLabels& next,
                   int64_t depth, const Feed& feed) {
  if (!feed.uses_own_guesses() || !drafter.autoregressive()) return next.ids;
  const at::NoGradGuard no_grad;
  const at::Device device = state.hidden.device();
  const at::Tensor rows = kernels::to_device(rows_with_own_guess(next, depth, feed), device);
  if (rows.numel() == 0) return next.ids;
  const at::Tensor parents = next.parents.index_select(0, rows);
  at::Tensor best = kernels::to_device(
      best_guesses(drafter.head_input(state.rows(parents)), feed.heads->at(depth - 1)), device);
  if (const at::Tensor& map = drafter.head(depth - 1).token_map; map.defined())
    best = map.index_select(0, best);
  return next.ids.index_copy(0, rows, best);
}

}  // namespace

LossHeads::LossHeads(const model::Drafter& drafter, at::ScalarType dtype) : drafter_(drafter), dtype_(dtype) {
  const model::OutputHead& head = drafter.head(0);
  TORCH_CHECK(head.dense.defined(), "the drafter was made without what training needs");
  if (head.trainable()) return;
  shared_weight_ = head.dense;
  shared_cast_ = shared_weight_.to(drafter.device(), dtype).contiguous();
}

LossHead LossHeads::at(int64_t depth) const {
  const model::OutputHead& head = drafter_.head(depth);
  if (head.dense.is_same(shared_weight_)) return {shared_cast_};
  const at::Tensor bias = head.dense_bias.defined() ? head.dense_bias.detach() : at::Tensor();
  return {head.dense.detach().to(dtype_).contiguous(), bias};
}

void rollout(model::Drafter& drafter, const model::Features& features, const PackedBatch& batch,
             const Feed& feed, const Visitor& visit) {
  model::DraftState state =
      drafter.prime(features, batch.next_ids, batch.segments, batch.labelled_rows, nullptr);
  for (int64_t depth = 0; depth < std::ssize(batch.heads); ++depth) {
    const HeadLabels& labels = batch.heads[depth];
    if (depth > 0)
      state = drafter.extend(state, labels.parents, fed_ids(drafter, state, labels, depth, feed), nullptr);
    visit(depth, state, labels);
  }
}

}  // namespace clover::train
