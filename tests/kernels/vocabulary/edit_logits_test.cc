#include "kernels/vocabulary/edit_logits.h"

#include <ATen/ATen.h>

#include <limits>
#include <map>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

at::Tensor words(const std::vector<LogitEdit>& edits) {
  at::Tensor tensor = at::empty({std::ssize(edits), 4}, at::kInt);
  std::copy_n(reinterpret_cast<const int32_t*>(edits.data()), tensor.numel(),
              tensor.mutable_data_ptr<int32_t>());
  return tensor;
}

at::Tensor words(const std::vector<EditedRow>& rows) {
  at::Tensor tensor = at::empty({std::ssize(rows), 5}, at::kInt);
  std::copy_n(reinterpret_cast<const int32_t*>(rows.data()), tensor.numel(),
              tensor.mutable_data_ptr<int32_t>());
  return tensor;
}

at::Tensor edited_by(const at::Tensor& logits, const std::vector<LogitEdit>& edits,
                     const std::vector<EditedRow>& rows) {
  at::Tensor result = logits.clone();
  here::in_place(result, [&](at::Tensor& placed) {
    edit_logits(placed, here::place(words(edits)), here::place(words(rows)));
  });
  return result;
}

// Which edit a token gets in a row is looked up token by token, and done in the order of the contract.
at::Tensor edited_plainly(const at::Tensor& logits, const std::vector<LogitEdit>& edits,
                          const std::vector<EditedRow>& rows) {
  at::Tensor result = logits.clone();
  for (const EditedRow& row : rows) {
    std::map<int32_t, LogitEdit> of_token;
    for (int32_t i = row.begin; i < row.end; ++i) of_token[edits[i].id] = edits[i];
    for (int32_t i = row.own_begin; i < row.own_end; ++i) of_token[edits[i].id] = edits[i];
    float* x = result.mutable_data_ptr<float>() + row.row * logits.size(1);
    for (const auto& [id, edit] : of_token) {
      x[id] += edit.bias;
      x[id] = x[id] < 0 ? x[id] * edit.penalty : x[id] / edit.penalty;
      x[id] -= edit.subtracted;
    }
  }
  return result;
}

TEST(EditLogits, OwnEditsStandInForSharedOnes) {
  at::manual_seed(5);
  at::Tensor logits = at::randn({5, 1000}) * 4;
  logits[1][7] = -infinite;
  logits[1][8] = std::numeric_limits<float>::quiet_NaN();
  std::vector<LogitEdit> edits;
  for (int32_t id = 0; id < 700; ++id)  // more than a block's threads
    edits.push_back({id, id % 5 == 0 ? 1.5f : 0, id % 3 == 0 ? 1.3f : 1, id % 7 == 0 ? 0.75f : 0});
  for (int32_t id = 600; id < 950; ++id) edits.push_back({id, id % 2 == 0 ? -infinite : 0.25f, 1.1f, 0.5f});
  edits.push_back({3, -2, 0.5f, -1});
  edits.push_back({999, 100, 1, 0});
  const std::vector<EditedRow> rows{
      {4, 0, 700, 700, 1050}, {1, 0, 700, 1050, 1050}, {2, 10, 10, 1050, 1052}, {0, 5, 6, 7, 7}};
  const at::Tensor expected = edited_plainly(logits, edits, rows);
  EXPECT_EQ(expected[4][600].item<float>(), -infinite);
  on_every_path([&] {
    const at::Tensor found = edited_by(logits, edits, rows);
    EXPECT_TRUE(same_bits(found, expected));
    for (const EditedRow& row : rows)  // a row alone, and among others
      EXPECT_TRUE(same_bits(edited_by(logits, edits, {row})[row.row], expected[row.row]));
  });
}

TEST(EditLogits, NothingToDoIsNoWorkAndMistakesAreTold) {
  const at::Tensor logits = at::randn({2, 6});
  on_every_path([&] {
    EXPECT_TRUE(same_bits(edited_by(logits, {}, {{0, 0, 0, 0, 0}}), logits));
    EXPECT_TRUE(same_bits(edited_by(logits, {{1, 1, 1, 1}}, {}), logits));
  });
  if (!here::place(at::empty({1})).is_cpu()) return;
  EXPECT_NE(error_of([&] {
              edited_by(logits, {{6, 1, 1, 1}}, {{0, 0, 1, 0, 0}});
            }).find("token 6"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              edited_by(logits, {{0, 1, 1, 1}}, {{2, 0, 1, 0, 0}});
            }).find("row 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              edited_by(logits, {{0, 1, 1, 1}}, {{0, 0, 1, 0, 2}});
            }).find("1 edits"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
