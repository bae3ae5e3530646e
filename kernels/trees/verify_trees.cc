#include "kernels/trees/verify_trees.h"

#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {

void verify_trees(const VerifyInput& input, VerifyOutput& output) {
  const char* const name = "verify_trees";
  const at::Device device = device_of(name, input.tokens);
  const auto check = [&](const char* argument, const at::Tensor& tensor, at::IntArrayRef shape) {
    check_tensor(name, argument, tensor, shape, at::kLong, device);
  };
  check("tokens", input.tokens, {-1});
  const int64_t rows = input.tokens.size(0);
  check("ids", input.ids, {rows});
  check("parents", input.parents, {rows});
  check("slots", input.slots, {rows});
  check("trees", input.trees, {-1, tree_rows_size});
  check("moves", output.moves, {3, rows});
  check("drafter_rows", output.drafter_rows, {-1});
  check("next_ids", output.next_ids, {-1});
  check("last_rows", output.last_rows, {-1});
  TORCH_CHECK(output.next_ids.size(0) >= output.drafter_rows.size(0), name, ": room for ",
              output.next_ids.size(0), " next tokens, expected ", output.drafter_rows.size(0), ".");
  if (input.trees.size(0) == 0) return;
  run(name, input.tokens,
      VerifyCall{.tokens = input.tokens.const_data_ptr<int64_t>(),
                 .ids = input.ids.const_data_ptr<int64_t>(),
                 .parents = input.parents.const_data_ptr<int64_t>(),
                 .slots = input.slots.const_data_ptr<int64_t>(),
                 .trees = static_cast<const TreeRows*>(input.trees.const_data_ptr()),
                 .rows = rows,
                 .count = input.trees.size(0),
                 .moves = output.moves.mutable_data_ptr<int64_t>(),
                 .drafter_rows = output.drafter_rows.mutable_data_ptr<int64_t>(),
                 .next_ids = output.next_ids.mutable_data_ptr<int64_t>(),
                 .last_rows = output.last_rows.mutable_data_ptr<int64_t>(),
                 .drafter_size = output.drafter_rows.size(0),
                 .last_size = output.last_rows.size(0)});
}

}  // namespace clover::kernels
