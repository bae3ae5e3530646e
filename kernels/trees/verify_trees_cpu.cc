#include <c10/util/Exception.h>

#include "kernels/trees/verify_trees_call.h"

// verify_trees on a CPU.  The engine's acceptance on the CPU, and typical acceptance, are in
// infer/tree/verify.cc.
namespace clover::kernels {
namespace {

bool within(int64_t begin, int64_t count, int64_t size) {
  return begin >= 0 && count >= 0 && count <= size && begin <= size - count;
}

void check(const VerifyCall& call, int64_t tree) {
  const TreeRows& tree_rows = call.trees[tree];
  TORCH_CHECK(within(tree_rows.row, tree_rows.rows, call.rows) && tree_rows.rows > 0, "verify_trees: tree ",
              tree, " has rows ", tree_rows.row, " + ", tree_rows.rows, " of ", call.rows, ".");
  TORCH_CHECK(tree_rows.drafter_rows == 0 ||
                  (within(tree_rows.first_drafter_row, tree_rows.drafter_rows, call.drafter_size) &&
                   within(tree_rows.last_row_index, 1, call.last_size)),
              "verify_trees: tree ", tree, " has no room for the rows accepted.");
}

}  // namespace

void run_on_cpu(const VerifyCall& call) {
  for (int64_t tree = 0; tree < call.count; ++tree) {
    check(call, tree);
    const TreeRows& tree_rows = call.trees[tree];
    int64_t node = tree_rows.row, accepted = 0;
    verify::write_accepted(call, tree, node, accepted++);
    // Children come after their parents, so one loop over the rows finds the path.
    for (int64_t row = node + 1; row < tree_rows.row + tree_rows.rows; ++row) {
      if (call.parents[row] != node || call.ids[row] != call.tokens[node]) continue;
      node = row;
      verify::write_accepted(call, tree, node, accepted++);
    }
    for (int64_t i = accepted; i < tree_rows.rows; ++i) verify::write_unmoved(call, tree, i);
    for (int64_t i = accepted; i < tree_rows.drafter_rows; ++i) verify::write_repeated(call, tree, node, i);
  }
}

}  // namespace clover::kernels
