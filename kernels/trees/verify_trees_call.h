#pragma once

#include "kernels/op/call.h"
#include "kernels/op/host_device.h"

// The call of kernels/trees/verify_trees.h, and the writing of results, which verify_trees_cpu.cc and
// verify_trees_cuda.cu share.
namespace clover::kernels {

/// A tree's row of VerifyInput::trees.
struct TreeRows {
  int64_t row = 0, rows = 0;  // the tree's first row in the pass, which is the root, and how many it has
  // Begin and length of the tree's range of VerifyOutput::drafter_rows; length 0: the tree has no range.
  int64_t first_drafter_row = 0, drafter_rows = 0;
  int64_t last_row_index = 0;  // the tree's element of VerifyOutput::last_rows, if it has a range
};
constexpr int64_t tree_rows_size = 5;
static_assert(sizeof(TreeRows) == tree_rows_size * sizeof(int64_t));

struct VerifyCall {
  const int64_t *tokens, *ids, *parents, *slots;  // [rows], as in VerifyInput
  const TreeRows* trees;                          // [count] of trees
  int64_t rows, count;
  int64_t* moves;         // [3, rows]
  int64_t* drafter_rows;  // [drafter_size]
  int64_t* next_ids;      // [drafter_size]
  int64_t* last_rows;     // [last_size]
  int64_t drafter_size, last_size;
};
void run_on_cpu(const VerifyCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const VerifyCall& call, const GpuContext& context);

namespace verify {

/// Writes that row `node` of the pass is accepted; `accepted` rows of the tree number `tree` come before it.
CLOVER_HOST_DEVICE void write_accepted(const VerifyCall& call, int64_t tree, int64_t node, int64_t accepted) {
  const TreeRows& tree_rows = call.trees[tree];
  const int64_t at = tree_rows.row + accepted;
  call.moves[at] = node == at ? -1 : call.slots[node];
  call.moves[call.rows + at] = call.slots[at];
  call.moves[2 * call.rows + at] = tree;
  if (tree_rows.drafter_rows == 0) return;
  const int64_t last = tree_rows.drafter_rows - 1,
                to = tree_rows.first_drafter_row + (accepted < last ? accepted : last);
  call.drafter_rows[to] = node;
  call.next_ids[to] = call.tokens[node] < 0 ? 0 : call.tokens[node];
  call.last_rows[tree_rows.last_row_index] = to;
}

/// Writes to `moves` that no accepted row moves to the slot of row `offset` of a tree.
CLOVER_HOST_DEVICE void write_unmoved(const VerifyCall& call, int64_t tree, int64_t offset) {
  const int64_t at = call.trees[tree].row + offset;
  call.moves[at] = -1;
  call.moves[call.rows + at] = call.slots[at];
  call.moves[2 * call.rows + at] = tree;
}

/// Writes the last accepted row, `node`, to element `offset` of the tree's range of drafter_rows.
CLOVER_HOST_DEVICE void write_repeated(const VerifyCall& call, int64_t tree, int64_t node, int64_t offset) {
  const int64_t at = call.trees[tree].first_drafter_row + offset;
  call.drafter_rows[at] = node;
  call.next_ids[at] = call.tokens[node] < 0 ? 0 : call.tokens[node];
}

}  // namespace verify
}  // namespace clover::kernels
