#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "train/saved_drafter.h"

namespace clover::train {
Trainer::Trainer(const FitJob& job)
    : job_(job),
      label_map_(job.token_map, job.target->config().vocab),
      order_(job.store.size(data::Split::train), job.settings.batch, job.settings.seed),
      schedule_{job.settings.lr, job.settings.warmup, job.total_steps},
      features_(*job.target, job.drafter->features(), job.longest, job.settings.feature_cache),
      optimiser_(parameters_of(*job.drafter),
                 {job.settings.beta1, job.settings.beta2, job.settings.eps, job.settings.weight_decay}),
      weight_(loss_weight(*job.drafter, model::parse_dtype(job.settings.compute_dtype))) {
  if (!job.settings.feature_file.empty())
    features_.keep_for(job.feature_file(), job.store.size(data::Split::train));
}

void Trainer::micro_batch(std::span<const int64_t> indices, std::span<const double> head_scale,
                          StepFigures& figures) {
  const int64_t heads = job_.drafter->max_depth();
  std::vector<data::TokenStore::Sample> samples;
  std::vector<int64_t> rows;
  for (const int64_t index : indices) {
    samples.push_back(job_.sample(index));
    rows.push_back(useful_rows(samples.back(), heads));
  }
  const PackedBatch batch = pack(samples, heads);
  figures.answer_tokens += batch.supervised;
  figures.rows += batch.rows;
  const model::Features features = features_.of(samples, rows, indices);
  if (batch.rows == 0) return;
  const at::Tensor loss =
      teacher_forced_loss(*job_.drafter, features, on_device(batch, job_.target->device()), label_map_,
                          weight_, head_scale, figures.heads);
  if (!loss.defined()) return;
  figures.loss += loss.item<double>();
  loss.backward();
}

StepFigures Trainer::step(int64_t step) {
  const int64_t heads = job_.drafter->max_depth();
  const std::vector<int64_t> indices = order_.batch(step);
  std::vector<data::TokenStore::Sample> samples;
  for (const int64_t index : indices) samples.push_back(job_.sample(index));

  // The mean is over the whole global batch, so that cutting it into micro-batches changes nothing but
  // rounding.
  const std::vector<int64_t> labels = sayable_labels(samples, heads, label_map_);
  std::vector<double> head_scale(heads);
  for (int64_t i = 0; i < heads; ++i) {
    head_scale[i] =
        std::pow(job_.settings.head_decay, i) / static_cast<double>(std::max<int64_t>(labels[i], 1));
  }

  StepFigures figures;
  figures.heads.resize(heads);
  figures.rate = schedule_.rate(step);
  optimiser_.zero_gradients();
  const size_t size = static_cast<size_t>(job_.settings.micro_batch);
  for (size_t begin = 0; begin < indices.size(); begin += size) {
    const size_t count = std::min(size, indices.size() - begin);
    micro_batch(std::span(indices).subspan(begin, count), head_scale, figures);
  }
  figures.gradient_norm = optimiser_.clip_gradients(job_.settings.clip);
  if (!std::isfinite(figures.loss) || !std::isfinite(figures.gradient_norm)) {
    throw std::runtime_error("the loss is no finite number at step " + std::to_string(step + 1) +
                             ": begin again with a lower --lr");
  }
  optimiser_.step(figures.rate);
  return figures;
}

}  // namespace clover::train
