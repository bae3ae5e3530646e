#include <c10/util/Exception.h>

#include "kernels/trees/verify_trees_call.h"

// The CPU twin of the CUDA kernel.  The engine's own acceptance, and typical acceptance, are in
// infer/tree/verify.cc.
namespace clover::kernels {
namespace {

bool within(int64_t begin, int64_t count, int64_t size) {
  return begin >= 0 && count >= 0 && count <= size && begin <= size - count;
}

void check(const VerifyCall& call, int64_t tree) {
  const TreeRows& own = call.trees[tree];
  TORCH_CHECK(within(own.row, own.rows, call.rows) && own.rows > 0, "verify_trees: tree ", tree, " has rows ",
              own.row, " + ", own.rows, " of ", call.rows, ".");
  TORCH_CHECK(own.drafter_rows == 0 || (within(own.first_drafter_row, own.drafter_rows, call.drafter_size) &&
                                        within(own.last_row_index, 1, call.last_size)),
              "verify_trees: tree ", tree, " has no room for the rows accepted.");
}

}  // namespace

void run_on_cpu(const VerifyCall& call) {
  for (int64_t tree = 0; tree < call.count; ++tree) {
    check(call, tree);
    const TreeRows& own = call.trees[tree];
    int64_t node = own.row, accepted = 0;
    verify::write_accepted(call, tree, node, accepted++);
    // Children stand behind their parents, so that one pass over the rows finds the path.
    for (int64_t row = node + 1; row < own.row + own.rows; ++row) {
      if (call.parents[row] != node || call.ids[row] != call.tokens[node]) continue;
      node = row;
      verify::write_accepted(call, tree, node, accepted++);
    }
    for (int64_t i = accepted; i < own.rows; ++i) verify::write_unmoved(call, tree, i);
    for (int64_t i = accepted; i < own.drafter_rows; ++i) verify::write_repeated(call, tree, node, i);
  }
}

}  // namespace clover::kernels
