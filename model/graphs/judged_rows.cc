#include "model/graphs/judged_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"

namespace clover::model {

// All of what the CPU knows goes there in one copy.
FollowedRows::FollowedRows(const JudgedRows& judged) {
  const int64_t rows = std::ssize(judged.ids), trees = std::ssize(judged.trees);
  const int64_t places = trees * kernels::tree_place_size;
  const at::Tensor here = at::empty({3 * rows + places + std::ssize(judged.seen)}, at::kLong);
  int64_t* next = here.mutable_data_ptr<int64_t>();
  for (const auto* part : {&judged.ids, &judged.parents, &judged.slots})
    next = std::copy(part->begin(), part->end(), next);
  for (const kernels::TreePlace& place : judged.trees)
    for (const int64_t field : {place.row, place.rows, place.seen, place.seen_rows, place.frontier})
      *next++ = field;
  std::copy(judged.seen.begin(), judged.seen.end(), next);

  const at::Tensor there = kernels::to_device(here, judged.tokens.device());
  judged_ = {judged.tokens, there.narrow(0, 0, rows), there.narrow(0, rows, rows),
             there.narrow(0, 2 * rows, rows),
             there.narrow(0, 3 * rows, places).view({trees, kernels::tree_place_size})};
  followed_.moves = at::empty({3, rows}, there.options());
  followed_.seen = there.narrow(0, 3 * rows + places, std::ssize(judged.seen));
}

void FollowedRows::follow(const PassInputs& inputs) {
  followed_.next_ids = inputs.ids;
  followed_.frontier = inputs.wanted;
  kernels::follow_trees(judged_, followed_);
}

}  // namespace clover::model
