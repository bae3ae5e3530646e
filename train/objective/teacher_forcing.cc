#include "train/objective/teacher_forcing.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"

namespace clover::train {
namespace {

at::Tensor to_tensor(const std::vector<int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

struct LiveRow {
  int64_t sample;
  int64_t t;       // position of its features in the sample
  int64_t parent;  // its row in the previous head
  int64_t row;     // its row in the batch
};

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

HeadLabels head_labels(std::span<const data::TokenStore::Sample> samples, const std::vector<LiveRow>& live,
                       int64_t depth) {
  std::vector<int64_t> parents, ids, sample_of, position, scored_rows, labels, teacher_rows;
  for (size_t i = 0; i < live.size(); ++i) {
    const auto& [sample, t, parent, row] = live[i];
    sample_of.push_back(sample);
    position.push_back(t);
    if (depth > 0) {
      parents.push_back(parent);
      ids.push_back(samples[sample].ids[t + 1 + depth]);
    }
    const int64_t label = t + 2 + depth;
    if (!is_label(samples[sample], label)) continue;
    scored_rows.push_back(static_cast<int64_t>(i));
    labels.push_back(samples[sample].ids[label]);
    teacher_rows.push_back(row + 1 + depth);
  }
  HeadLabels work;
  if (depth > 0) {
    work.parents = to_tensor(parents);
    work.ids = to_tensor(ids);
  }
  work.sample = to_tensor(sample_of);
  work.t = to_tensor(position);
  work.scored_rows = to_tensor(scored_rows);
  work.labels = to_tensor(labels);
  work.teacher_rows = to_tensor(teacher_rows);
  return work;
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
  std::vector<LiveRow> live;
  for (size_t s = 0; s < samples.size(); ++s) {
    const auto& sample = samples[s];
    const int64_t rows = useful_rows(sample, heads, teacher);
    if (rows > 0) batch.segments.push_back({static_cast<int32_t>(s), 0, static_cast<int32_t>(rows)});
    for (int64_t t = 0; t < rows; ++t) {
      next_ids.push_back(sample.ids[t + 1]);
      if (!has_label_from_depth(sample, t, 0, heads)) continue;
      labelled_rows.push_back(batch.rows + t);
      live.push_back({static_cast<int64_t>(s), t, -1, batch.rows + t});
    }
    batch.rows += rows;
    batch.supervised += std::count(sample.supervised.begin(), sample.supervised.end(), uint8_t{1});
  }
  batch.next_ids = to_tensor(next_ids);
  batch.labelled_rows = to_tensor(labelled_rows);
  for (int64_t depth = 0; depth < heads; ++depth) {
    if (depth > 0) {
      std::vector<LiveRow> still;
      for (size_t row = 0; row < live.size(); ++row) {
        if (has_label_from_depth(samples[live[row].sample], live[row].t, depth, heads)) {
          still.push_back({live[row].sample, live[row].t, static_cast<int64_t>(row), live[row].row});
        }
      }
      live = std::move(still);
    }
    batch.heads.push_back(head_labels(samples, live, depth));
  }
  return batch;
}

PackedBatch on_device(PackedBatch batch, at::Device device) {
  const auto move = [device](at::Tensor& tensor) {
    if (tensor.defined()) tensor = kernels::to_device(tensor.contiguous(), device);
  };
  move(batch.next_ids);
  move(batch.labelled_rows);
  for (HeadLabels& work : batch.heads) {
    move(work.parents);
    move(work.ids);
  }
  return batch;
}

}  // namespace clover::train
