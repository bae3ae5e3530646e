#pragma once

#include <cstdint>

// What an op's kernels are called with after its checks: raw pointers, so that neither files compiled for a
// wide instruction family nor files compiled for a GPU see a tensor.  Meanings and shapes: the op's own
// header.
namespace clover::kernels {

enum class Element { fp32, bf16, fp16 };

/// What is done to rows of queries, keys and values, and where they go.
struct RopeCall {
  const float *cos, *sin;
  const int64_t* slots;
  float* q;
  void *k, *v;
  int64_t query_heads, kv_heads, head_size, page_size;
  Element cache;
  const float *query_norm, *key_norm;  // [head_size] or null
  float norm_eps;
};

/// What becomes of a product's sums.
enum class Epilogue { store, silu_mul, rope_and_store, best };

struct LinearCall {
  const void* x;       // [rows, inputs] of `element`; fp32 where they are normed first
  const void* panels;  // PackedWeight's layout on the device of the call
  const float* bias;   // [outputs] or null
  float* y;            // [rows, outputs]
  int64_t rows, outputs, inputs;
  Element element;
  bool accumulate;
  Epilogue epilogue;
  void* product;  // of silu_mul: [rows, outputs / 2] of `element`
  RopeCall rope;
  uint64_t* best;     // of best, on a GPU: [rows, panels], the largest key of each (vocabulary/ranking.cuh)
  const float* norm;  // [inputs], what rows are normed with, or null
  float norm_eps;
};

struct AttentionCall {
  const float* q;
  const void* k;
  const void* v;
  void* out;
  const int32_t *sequence, *contiguous, *path_begin, *path, *page_table;
  int64_t rows, sequences, query_heads, kv_heads, head_size, pages, page_size, pages_per_sequence;
  Element cache, result;
  float scale;
};

struct MoveCall {
  void* cache;  // [parts, pages, kv_heads, page_size, row_bytes]
  int64_t parts, pages, kv_heads, page_size, row_bytes;
  const int64_t* moves;  // [3, count]
  int64_t count;
};

/// A tree's row of GrowingTrees::state, all zeros for one that does not grow.
struct TreeState {
  int32_t nodes = 1;       // so far, the root included
  int32_t first_live = 0;  // the nodes that guesses are made for stand side by side from here on
  int32_t live = 1;
  int32_t row = 0;         // of the guesses for the first of them; the others' follow
  int32_t most_nodes = 1;  // the root included
  int32_t levels = 0;      // that may yet be added
  float least_joint = 0;   // nodes of a lower joint probability are left out, even the best
  int32_t last_first_live = 0, last_row = 0;  // a level ago
};
constexpr int64_t tree_state_size = 9;
static_assert(sizeof(TreeState) == tree_state_size * sizeof(int32_t));

struct GrowthCall {
  const float* logits;  // [.., guesses]
  const int64_t* ids;
  const float* log_sums;
  int64_t guesses, width;
  float top_p, relative_cut;
  bool one_row_a_tree;
  int64_t most_live, trees, nodes, capacity;
  int64_t* tree_ids;  // [trees, nodes]
  int32_t* tree_parent;
  float* tree_joint;
  TreeState* states;   // [trees]
  int64_t* next_rows;  // [2, capacity]
  int32_t* row_count;
};

/// A tree's row of JudgedTrees::trees.
struct TreePlace {
  int64_t row = 0, rows = 0;        // in the pass; the root's is the first
  int64_t seen = 0, seen_rows = 0;  // its range in FollowedTrees::seen; 0 rows: none
  int64_t frontier = 0;             // its place in FollowedTrees::frontier, where it has a range
};
constexpr int64_t tree_place_size = 5;
static_assert(sizeof(TreePlace) == tree_place_size * sizeof(int64_t));

struct FollowCall {
  const int64_t *tokens, *ids, *parents, *slots;  // [rows]
  const TreePlace* trees;                         // [count]
  int64_t rows, count;
  int64_t* moves;                       // [3, rows]
  int64_t *seen, *next_ids, *frontier;  // as in FollowedTrees
};

}  // namespace clover::kernels
