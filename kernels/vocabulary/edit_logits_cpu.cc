#include <c10/util/Exception.h>

#include <vector>

#include "kernels/cpu.h"
#include "kernels/cpu/cpu_loops.h"
#include "kernels/vocabulary/logit_edit.h"

namespace clover::kernels {
namespace {

void check(const EditedRow& row, const LogitEdit* edits, int64_t count, const at::Tensor& logits) {
  const auto inside = [&](int32_t begin, int32_t end) { return 0 <= begin && begin <= end && end <= count; };
  TORCH_CHECK(row.row >= 0 && row.row < logits.size(0) && inside(row.begin, row.end) &&
                  inside(row.own_begin, row.own_end),
              "edit_logits: row ", row.row, " or its edits are not among ", logits.size(0), " rows and ",
              count, " edits.");
  for (const auto& [begin, end] : {std::pair{row.begin, row.end}, {row.own_begin, row.own_end}})
    for (int32_t i = begin; i < end; ++i)
      TORCH_CHECK(edits[i].id >= 0 && edits[i].id < logits.size(1), "edit_logits: token ", edits[i].id,
                  " is not among ", logits.size(1), ".");
}

void edit_row(float* x, const LogitEdit* edits, const EditedRow& row) {
  thread_local std::vector<float> own;  // of what the logits were
  own.clear();
  for (int32_t i = row.own_begin; i < row.own_end; ++i) own.push_back(edited(x[edits[i].id], edits[i]));
  for (int32_t i = row.begin; i < row.end; ++i) x[edits[i].id] = edited(x[edits[i].id], edits[i]);
  for (int32_t i = row.own_begin; i < row.own_end; ++i) x[edits[i].id] = own[i - row.own_begin];
}

}  // namespace

void cpu::edit_logits(at::Tensor& logits, const at::Tensor& edits, const at::Tensor& rows) {
  const auto* edit = static_cast<const LogitEdit*>(edits.const_data_ptr());
  const auto* row = static_cast<const EditedRow*>(rows.const_data_ptr());
  const int64_t count = rows.size(0), width = logits.size(1);
  for (int64_t i = 0; i < count; ++i) check(row[i], edit, edits.size(0), logits);
  float* const x = logits.mutable_data_ptr<float>();
  for_rows(count, edits.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) edit_row(x + row[i].row * width, edit, row[i]);
  });
}

}  // namespace clover::kernels
