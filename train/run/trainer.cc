#include "train/run/trainer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "data/files/error.h"
#include "train/ranks/tree_sum.h"
#include "train/run/saved_drafter.h"

namespace clover::train {
namespace {

/// As numbers, for other processes.
void append(const StepFigures& figures, std::vector<double>& numbers) {
  numbers.push_back(figures.loss);
  numbers.push_back(static_cast<double>(figures.answer_tokens));
  numbers.push_back(static_cast<double>(figures.rows));
  for (const HeadFigures& head : figures.heads) {
    numbers.push_back(head.loss_sum);
    numbers.push_back(static_cast<double>(head.labels));
    numbers.push_back(static_cast<double>(head.sayable));
    for (const int64_t hits : head.hits) numbers.push_back(static_cast<double>(hits));
  }
}

StepFigures take_figures(size_t heads, std::vector<double>::const_iterator& next) {
  const auto count = [&next] { return static_cast<int64_t>(*next++); };
  StepFigures figures;
  figures.loss = *next++;
  figures.answer_tokens = count();
  figures.rows = count();
  figures.heads.resize(heads);
  for (HeadFigures& head : figures.heads) {
    head.loss_sum = *next++;
    head.labels = count();
    head.sayable = count();
    for (int64_t& hits : head.hits) hits = count();
  }
  return figures;
}

}  // namespace

void check_ranks(const FitSettings& settings, infer::Rank rank) {
  const int64_t micro_batches = (settings.batch + settings.micro_batch - 1) / settings.micro_batch;
  if (rank.count <= micro_batches) return;
  throw data::InputError(std::to_string(rank.count) + " processes: expected at most " +
                         std::to_string(micro_batches) + ", one for each micro-batch of a step (--batch " +
                         std::to_string(settings.batch) + " in parts of --micro-batch " +
                         std::to_string(settings.micro_batch) + "); lower --micro-batch.");
}

void StepFigures::add(const StepFigures& other) {
  heads.resize(other.heads.size());
  for (size_t i = 0; i < heads.size(); ++i) heads[i].add(other.heads[i]);
  loss += other.loss;
  answer_tokens += other.answer_tokens;
  rows += other.rows;
}

Trainer::Trainer(const FitJob& job, Communicator& ranks)
    : job_(job),
      ranks_(ranks),
      label_map_(job.token_map, job.target->config().vocab),
      order_(std::ssize(job.order), job.settings.batch, job.settings.seed),
      schedule_{job.settings.lr, job.settings.warmup, job.total_steps},
      features_(*job.target, job.drafter->features(), job.longest, job.settings.feature_cache,
                {job.settings.target, job.features.empty() ? "" : job.settings.feature_file}),
      optimiser_(parameters_of(*job.drafter),
                 {job.settings.beta1, job.settings.beta2, job.settings.eps, job.settings.weight_decay}),
      weight_(loss_weight(*job.drafter, model::parse_dtype(job.settings.compute_dtype))) {
  for (const auto& [name, parameter] : parameters_of(*job.drafter)) {
    parameters_.push_back(parameter);
    gradient_size_ += parameter.numel();
  }
  if (!job.settings.feature_file.empty() && (ranks.alone() || !job.features.empty()))
    features_.keep_for_file(job.features, job.store.size(data::Split::train), job.order);
}

at::TensorOptions Trainer::gradient_options() const {
  return at::TensorOptions(at::kFloat).device(job_.target->device());
}

/// `gradient`, fp32 [gradient_size_], is where gradients are added from now on.
void Trainer::use_gradient(const at::Tensor& gradient) {
  int64_t begin = 0;
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = gradient.narrow(0, begin, parameter.numel()).view(parameter.sizes());
    begin += parameter.numel();
  }
}

StepFigures Trainer::micro_batch(std::span<const int64_t> indices, std::span<const double> head_scale) {
  const int64_t heads = job_.drafter->max_depth();
  std::vector<data::TokenStore::Sample> samples;
  std::vector<int64_t> rows;
  for (const int64_t index : indices) {
    samples.push_back(job_.sample(index));
    rows.push_back(useful_rows(samples.back(), heads));
  }
  const PackedBatch batch = pack(samples, heads);
  StepFigures figures;
  figures.heads.resize(heads);
  figures.answer_tokens = batch.supervised;
  figures.rows = batch.rows;
  const model::Features features = features_.of(samples, rows, indices);
  if (batch.rows == 0) return figures;
  const at::Tensor loss =
      teacher_forced_loss(*job_.drafter, features, on_device(batch, job_.target->device()), label_map_,
                          weight_, head_scale, figures.heads);
  if (!loss.defined()) return figures;
  figures.loss = loss.item<double>();
  loss.backward();
  return figures;
}

std::vector<int64_t> Trainer::labels_of(std::span<const int64_t> indices) const {
  std::vector<data::TokenStore::Sample> samples;
  for (const int64_t index : indices) samples.push_back(job_.sample(index));
  return sayable_labels(samples, job_.drafter->max_depth(), label_map_);
}

// The mean is over the whole global batch, so that cutting it into micro-batches changes nothing but
// rounding.
std::vector<double> Trainer::head_scale(std::span<const int64_t> labels) const {
  std::vector<double> scale(labels.size());
  for (size_t i = 0; i < scale.size(); ++i) {
    scale[i] = std::pow(job_.settings.head_decay, i) / static_cast<double>(std::max<int64_t>(labels[i], 1));
  }
  return scale;
}

/// What made loss or gradient of step `step`, from 0, no finite number, the features being finite.
std::string Trainer::why_not_finite(int64_t step) const {
  const std::string what = "the loss is no finite number at step " + std::to_string(step + 1);
  try {
    check_finite_weights(job_.settings.target, job_.target->dtype());
  } catch (const data::InputError& error) {
    return what + ": " + error.what();
  }
  if (step > 0) return what + ": begin again with a lower --lr";
  return what + ", before any weight was changed: the target's features are too large for --dtype " +
         model::dtype_name(job_.target->dtype()) + " and --compute-dtype " + job_.settings.compute_dtype +
         ", give float32";
}

/// Of this process's micro-batches and, in their order, of all others'.
StepFigures Trainer::sum_figures(const std::vector<StepFigures>& own) {
  std::vector<double> numbers;
  for (const StepFigures& figures : own) append(figures, numbers);
  StepFigures all;
  all.heads.resize(job_.drafter->max_depth());
  for (const std::vector<double>& said : ranks_.gather(numbers)) {
    for (auto next = said.begin(); next != said.end();) all.add(take_figures(all.heads.size(), next));
  }
  return all;
}

/// Of a step without a label, which only the order of older runs has: momentum and decay alone must not move
/// weights.
StepFigures Trainer::nothing_learned(int64_t step) {
  StepFigures figures;
  optimiser_.skip_step();
  figures.heads.resize(job_.drafter->max_depth());
  figures.rate = schedule_.rate(step);
  return figures;
}

StepFigures Trainer::step(int64_t step) {
  std::vector<int64_t> indices = order_.batch(step);
  for (int64_t& index : indices) index = job_.order[index];
  const std::vector<int64_t> labels = labels_of(indices);
  if (std::ranges::all_of(labels, [](int64_t count) { return count == 0; })) return nothing_learned(step);
  const std::vector<double> scale = head_scale(labels);
  const int64_t size = job_.settings.micro_batch, count = std::ssize(indices);
  const int64_t micro_batches = (count + size - 1) / size, ranks = ranks_.rank().count;

  const auto [first, last] = share_of(micro_batches, ranks_.rank().number, ranks);
  std::vector<StepFigures> own;
  const at::Tensor gradient = tree_sum(first, last, [&](int64_t i) {
    const at::Tensor part = at::zeros({gradient_size_}, gradient_options());
    use_gradient(part);
    const auto samples = std::span(indices).subspan(i * size, std::min(size, count - i * size));
    own.push_back(micro_batch(samples, scale));
    return part;
  });
  StepFigures figures = sum_figures(own);
  std::vector<bool> holds;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto share = share_of(micro_batches, rank, ranks);
    holds.push_back(share.first < share.second);
  }
  use_gradient(ranks_.sum(gradient, holds, gradient_options(), gradient_size_));

  figures.rate = schedule_.rate(step);
  figures.gradient_norm = optimiser_.clip_gradients(job_.settings.clip);
  if (!std::isfinite(figures.loss) || !std::isfinite(figures.gradient_norm)) {
    throw std::runtime_error(why_not_finite(step));
  }
  optimiser_.step(figures.rate);
  optimiser_.zero_gradients();
  return figures;
}

}  // namespace clover::train
