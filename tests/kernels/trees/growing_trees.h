#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/trees/tree_growth.h"

// Trees and guesses that the tests of growth make up.
namespace clover::kernels::growing {

struct Node {
  int64_t id;
  int32_t parent;
  float score;
};

/// A tree and, for each live node, the row of its guesses.
struct Tree {
  std::vector<Node> nodes{{0, -1, 1.0f}};
  int32_t first_live = 0, live = 1, guess_row = 0, most = 1, levels = 1;
  float min_score = 0;
  int32_t max_kept = 1;
};

/// What all trees are grown with.
struct Level {
  at::Tensor logits, ids, log_sums;
  LevelRule rule;
  int64_t max_live = 64;
};

inline double probability(const Level& level, int64_t row, int64_t rank) {
  const double its = std::exp(static_cast<double>(level.logits[row][rank].item<float>()) -
                              level.log_sums[row].item<float>());
  return its > 0 ? std::min(its, 1.0) : 0.0;
}

inline GrowingTrees tensors_of(const std::vector<Tree>& trees, int64_t nodes, int64_t rows) {
  const int64_t count = std::ssize(trees);
  GrowingTrees packed{at::full({count, nodes}, -7, at::kLong), at::full({count, nodes}, -7, at::kInt),
                      at::full({count, nodes}, -7.0f),         at::zeros({count, tree_state_size}, at::kInt),
                      at::full({2, rows}, -7, at::kLong),      at::full({1}, -7, at::kInt)};
  for (int64_t i = 0; i < count; ++i) {
    const Tree& tree = trees[i];
    for (int64_t node = 1; node < std::ssize(tree.nodes); ++node) {
      packed.ids[i][node] = tree.nodes[node].id;
      packed.parent[i][node] = tree.nodes[node].parent;
      packed.score[i][node] = tree.nodes[node].score;
    }
    static_cast<TreeState*>(packed.state.mutable_data_ptr())[i] = {static_cast<int32_t>(tree.nodes.size()),
                                                                   tree.first_live,
                                                                   tree.live,
                                                                   tree.guess_row,
                                                                   tree.most,
                                                                   tree.levels,
                                                                   tree.min_score,
                                                                   0,
                                                                   0,
                                                                   tree.max_kept};
  }
  return packed;
}

class Growth {
 public:
  explicit Growth(uint64_t seed) : random_(seed) {}

  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  int64_t one_of(std::vector<int64_t> values) { return values[draw(0, std::ssize(values) - 1)]; }

  /// Guesses for `rows` rows: sorted logits with ties, whose ids rise among equals.  No two rows are alike,
  /// or the order of products that differ by a rounding would be anybody's guess.
  void guess(Level& level, int64_t rows, int64_t width) {
    level.logits = at::empty({rows, width});
    level.ids = at::empty({rows, width}, at::kLong);
    level.log_sums = at::empty({rows});
    for (int64_t row = 0; row < rows; ++row) {
      const double sharpness = static_cast<double>(one_of({0, 1, 8})) / 4;
      double logit = 2, sum = 0;
      int64_t id = draw(0, 20);
      for (int64_t rank = 0; rank < width; ++rank) {
        const int64_t lower = rank > 0 ? draw(0, 2) : 0;
        logit -= static_cast<double>(lower) * sharpness;
        id = lower > 0 && sharpness > 0 ? draw(0, 20) + 30 * rank : id + 1;
        level.logits[row][rank] = logit;
        level.ids[row][rank] = id;
        sum += std::exp(logit);
      }
      level.log_sums[row] = std::log(sum * std::uniform_real_distribution<double>(1, 1.5)(random_));
    }
  }

 private:
  std::mt19937_64 random_;
};

inline void expect_rows(const std::vector<std::pair<int64_t, int64_t>>& rows, const GrowingTrees& found) {
  ASSERT_EQ(found.row_count.item<int32_t>(), std::ssize(rows));
  for (int64_t i = 0; i < found.rows.size(1); ++i) {
    const auto [parent, id] = i < std::ssize(rows) ? rows[i] : std::pair<int64_t, int64_t>{0, 0};
    ASSERT_EQ(found.rows[0][i].item<int64_t>(), parent) << i;
    ASSERT_EQ(found.rows[1][i].item<int64_t>(), id) << i;
  }
}

}  // namespace clover::kernels::growing
