#include <c10/util/Exception.h>

#include <vector>

#include "kernels/cpu/rows.h"
#include "kernels/vocabulary/edit_logits.h"

namespace clover::kernels {
namespace {

void check(const EditCall& call, const EditedRow& row) {
  const auto inside = [&](int32_t begin, int32_t end) {
    return 0 <= begin && begin <= end && end <= call.edit_count;
  };
  TORCH_CHECK(row.row >= 0 && row.row < call.logit_rows && inside(row.begin, row.end) &&
                  inside(row.own_begin, row.own_end),
              "edit_logits: row ", row.row, " or its edits are not among ", call.logit_rows, " rows and ",
              call.edit_count, " edits.");
  for (const auto& [begin, end] : {std::pair{row.begin, row.end}, {row.own_begin, row.own_end}})
    for (int32_t i = begin; i < end; ++i)
      TORCH_CHECK(call.edits[i].id >= 0 && call.edits[i].id < call.width, "edit_logits: token ",
                  call.edits[i].id, " is not among ", call.width, ".");
}

void edit_row(float* x, const LogitEdit* edits, const EditedRow& row) {
  thread_local std::vector<float> own;  // results of the row's own edits, from the logits before any edit
  own.clear();
  for (int32_t i = row.own_begin; i < row.own_end; ++i) own.push_back(apply_edit(x[edits[i].id], edits[i]));
  for (int32_t i = row.begin; i < row.end; ++i) x[edits[i].id] = apply_edit(x[edits[i].id], edits[i]);
  for (int32_t i = row.own_begin; i < row.own_end; ++i) x[edits[i].id] = own[i - row.own_begin];
}

}  // namespace

void run_on_cpu(const EditCall& call) {
  for (int64_t i = 0; i < call.row_count; ++i) check(call, call.rows[i]);
  cpu::for_rows(call.row_count, call.edit_count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      edit_row(call.logits + call.rows[i].row * call.width, call.edits, call.rows[i]);
  });
}

}  // namespace clover::kernels
