#include "kernels/trees/follow_trees.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"

namespace clover::kernels {

void follow_trees(const JudgedTrees& judged, FollowedTrees& followed) {
  const char* const name = "follow_trees";
  const bool cuda = on_cuda(name, judged.tokens);
  const at::Device device = judged.tokens.device();
  const auto check = [&](const char* argument, const at::Tensor& tensor, at::IntArrayRef shape) {
    check_tensor(name, argument, tensor, shape, at::kLong, device);
  };
  check("tokens", judged.tokens, {-1});
  const int64_t rows = judged.tokens.size(0);
  check("ids", judged.ids, {rows});
  check("parents", judged.parents, {rows});
  check("slots", judged.slots, {rows});
  check("trees", judged.trees, {-1, tree_place_size});
  check("moves", followed.moves, {3, rows});
  check("seen", followed.seen, {-1});
  check("next_ids", followed.next_ids, {-1});
  check("frontier", followed.frontier, {-1});
  TORCH_CHECK(followed.next_ids.size(0) >= followed.seen.size(0), name, ": room for ",
              followed.next_ids.size(0), " next tokens, expected ", followed.seen.size(0), ".");
  if (judged.trees.size(0) == 0) return;
  (cuda ? cuda::follow_trees : cpu::follow_trees)(judged, followed);
}

}  // namespace clover::kernels
