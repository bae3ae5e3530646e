#include "train/objective/packed_batch.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"

namespace clover::train {
namespace {

/// A row of a head; this head or a later one has a label for it.
struct LabelledRow {
  int64_t sample;  // index in the batch
  int64_t t;       // position of its features in the sample
  int64_t parent;  // its parent's index among the rows of the previous head
  int64_t row;     // index in the batch of the row with its features
};

/// Whether token `index` of the sample exists and is supervised.
bool is_label(const data::TokenStore::Sample& sample, int64_t index) {
  return index < static_cast<int64_t>(sample.ids.size()) && sample.supervised[index];
}

/// Whether head `depth` or a later one has a supervised label at row t.
bool has_label_from_depth(const data::TokenStore::Sample& sample, int64_t t, int64_t depth, int64_t heads) {
  for (int64_t i = depth; i < heads; ++i) {
    if (is_label(sample, t + 2 + i)) return true;
  }
  return false;
}

/// The rows `rows` of head `depth` with their labels.
HeadLabels head_labels(std::span<const data::TokenStore::Sample> samples,
                       const std::vector<LabelledRow>& rows, int64_t depth) {
  std::vector<int64_t> parents, ids, sample_of, position, scored_rows, token_ids, teacher_rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [sample, t, parent, row] = rows[i];
    sample_of.push_back(sample);
    position.push_back(t);
    if (depth > 0) {
      parents.push_back(parent);
      ids.push_back(samples[sample].ids[t + 1 + depth]);
    }
    const int64_t label = t + 2 + depth;
    if (!is_label(samples[sample], label)) continue;
    scored_rows.push_back(static_cast<int64_t>(i));
    token_ids.push_back(samples[sample].ids[label]);
    teacher_rows.push_back(row + 1 + depth);
  }
  HeadLabels labels;
  if (depth > 0) {
    labels.parents = at::tensor(parents, at::kLong);
    labels.ids = at::tensor(ids, at::kLong);
  }
  labels.sample = at::tensor(sample_of, at::kLong);
  labels.t = at::tensor(position, at::kLong);
  labels.scored_rows = at::tensor(scored_rows, at::kLong);
  labels.labels = at::tensor(token_ids, at::kLong);
  labels.teacher_rows = at::tensor(teacher_rows, at::kLong);
  return labels;
}

}  // namespace

int64_t useful_rows(const data::TokenStore::Sample& sample, int64_t heads, TeacherRow teacher) {
  for (int64_t t = static_cast<int64_t>(sample.ids.size()) - 3; t >= 0; --t) {
    if (has_label_from_depth(sample, t, 0, heads)) return t + (teacher == TeacherRow::yes ? 2 : 1);
  }
  return 0;
}

PackedBatch pack(std::span<const data::TokenStore::Sample> samples, int64_t heads, TeacherRow teacher) {
  PackedBatch batch;
  std::vector<int64_t> next_ids, labelled_rows;
  std::vector<LabelledRow> labelled;
  for (size_t s = 0; s < samples.size(); ++s) {
    const auto& sample = samples[s];
    const int64_t rows = useful_rows(sample, heads, teacher);
    if (rows > 0) batch.segments.push_back({static_cast<int32_t>(s), 0, static_cast<int32_t>(rows)});
    for (int64_t t = 0; t < rows; ++t) {
      next_ids.push_back(sample.ids[t + 1]);
      if (!has_label_from_depth(sample, t, 0, heads)) continue;
      labelled_rows.push_back(batch.rows + t);
      labelled.push_back({static_cast<int64_t>(s), t, -1, batch.rows + t});
    }
    batch.rows += rows;
    batch.supervised += std::count(sample.supervised.begin(), sample.supervised.end(), uint8_t{1});
  }
  batch.next_ids = at::tensor(next_ids, at::kLong);
  batch.labelled_rows = at::tensor(labelled_rows, at::kLong);
  for (int64_t depth = 0; depth < heads; ++depth) {
    if (depth > 0) {
      std::vector<LabelledRow> next_labelled;
      for (size_t row = 0; row < labelled.size(); ++row) {
        if (has_label_from_depth(samples[labelled[row].sample], labelled[row].t, depth, heads)) {
          next_labelled.push_back(
              {labelled[row].sample, labelled[row].t, static_cast<int64_t>(row), labelled[row].row});
        }
      }
      labelled = std::move(next_labelled);
    }
    batch.heads.push_back(head_labels(samples, labelled, depth));
  }
  return batch;
}

PackedBatch on_device(PackedBatch batch, at::Device device) {
  const auto move = [device](at::Tensor& tensor) {
    if (tensor.defined()) tensor = kernels::to_device(tensor.contiguous(), device);
  };
  move(batch.next_ids);
  move(batch.labelled_rows);
  for (HeadLabels& labels : batch.heads) {
    move(labels.parents);
    move(labels.ids);
  }
  return batch;
}

}  // namespace clover::train
