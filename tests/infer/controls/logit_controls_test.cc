#include "infer/controls/logit_controls.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "data/files/error.h"
#include "kernels/vocabulary/edit_logits.h"
#include "tests/infer/engine/plain_controls.h"

namespace clover::infer {
namespace {

constexpr int64_t vocab = 130;
const std::vector<int64_t> end_ids = {2, 9};

CandidateTree random_tree(std::mt19937_64& random, int64_t root, int64_t nodes) {
  CandidateTree tree = CandidateTree::of_root(root);
  for (int64_t i = 0; i < nodes; ++i)
    tree.add(int64_t(random() % 6), int32_t(random() % uint64_t(tree.size())), 0.5f);
  return tree;
}

template <class Struct>
at::Tensor words(std::vector<Struct>& structs) {
  return at::from_blob(structs.data(), {std::ssize(structs), int64_t{sizeof(Struct) / 4}}, at::kInt);
}

/// Expects the logits that test::process computes for the rows of a tree after `text`, which are rows 2, 3,
/// .. of a pass.
void expect_plain(LogitEditor& text, const LogitControls& controls, const std::vector<int64_t>& ids,
                  int64_t prompt, const CandidateTree& tree) {
  const at::Tensor before = at::randn({tree.size() + 3, vocab}) * 3;
  at::Tensor after = before.clone();
  LogitEdits all;
  text.add_edits(tree, 2, all);
  kernels::edit_logits(after, words(all.edits), words(all.rows));
  EXPECT_TRUE(after.slice(0, 0, 2).equal(before.slice(0, 0, 2)) && after[-1].equal(before[-1]));
  for (int32_t node = 0; node < tree.size(); ++node) {
    std::vector<int64_t> path;
    for (int32_t at = node; at > 0; at = tree.parent[at]) path.insert(path.begin(), tree.ids[at]);
    std::vector<int64_t> behind = ids;
    behind.insert(behind.end(), path.begin(), path.end());
    const float* row = before.const_data_ptr<float>() + (node + 2) * vocab;
    std::vector<float> expected(row, row + vocab);
    test::process(expected, controls, behind, prompt, end_ids);
    EXPECT_TRUE(after[node + 2].equal(at::tensor(expected))) << "node " << node;
  }
}

TEST(LogitEditor, EveryNodeSeesItsOwnText) {
  std::mt19937_64 random(3);
  at::manual_seed(3);
  for (int64_t number = 0; number < 400; ++number) {
    SCOPED_TRACE(number);
    const auto controls = test::some_controls(number);
    if (!controls) continue;
    std::vector<int64_t> ids;
    for (int64_t i = 0; i <= number % 30; ++i) ids.push_back(int64_t(random() % 20));
    const int64_t prompt = std::ssize(ids);
    LogitEditor text(controls, ids, end_ids);
    expect_plain(text, *controls, ids, prompt, CandidateTree::of_root(0));
    for (int64_t step = 0; step < 12; ++step) {
      ids.push_back(int64_t(random() % 6));
      text.append(ids.back());
      expect_plain(text, *controls, ids, prompt, random_tree(random, ids.back(), step * 3));
    }
  }
}

// A pass may begin before the last token is known only where that changes nothing.
TEST(LogitEditor, KnowsWhetherEditsDependOnTheText) {
  const auto follows = [](LogitControls controls) {
    const std::vector<int64_t> prompt{4, 5};
    return LogitEditor(std::make_shared<const LogitControls>(std::move(controls)), prompt, end_ids)
        .depends_on_text();
  };
  EXPECT_FALSE(follows({.bias = {{1, 2.0}}}));
  EXPECT_FALSE(follows({.suppressed = {1}, .suppressed_first = {2}}));
  EXPECT_FALSE(follows({.bad_words = {{7}}}));
  EXPECT_TRUE(follows({.bad_words = {{7, 8}}}));
  EXPECT_TRUE(follows({.repetition_penalty = 1.1}));
  EXPECT_TRUE(follows({.presence_penalty = 1}));
  EXPECT_TRUE(follows({.frequency_penalty = -1}));
  EXPECT_TRUE(follows({.no_repeat_ngram = 3}));
  EXPECT_TRUE(follows({.min_tokens = 3}));
  EXPECT_TRUE(follows({.min_length = 3}));
}

TEST(LogitControls, RefuseIdsOutsideTheVocabularyAndBanningAllTokens) {
  const auto error_of = [](const LogitControls& controls) {
    try {
      controls.check(4);
    } catch (const data::InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of({.bias = {{3, 1.0}}, .suppressed = {0, 1, 2}}), "");
  for (const LogitControls& controls :
       {LogitControls{.bias = {{4, 1.0}}}, LogitControls{.suppressed = {-1}},
        LogitControls{.suppressed_first = {4}}, LogitControls{.bad_words = {{1, 4, 2}}}})
    EXPECT_NE(error_of(controls).find("expected token ids from 0 to 3, found "), std::string::npos);
  EXPECT_NE(error_of({.suppressed = {0, 1}, .suppressed_first = {2}, .bad_words = {{3}}}).find("all of them"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::infer
