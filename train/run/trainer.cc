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

/// Root mean square of the matrices in SmolLM2-135M's layers, with which the configurations' learning rates
/// were found.
constexpr double reference_rms = 0.2;

/// Factors of the learning rate.  Adam moves every weight by about the rate, whatever its size; so a matrix
/// copied from the target, which may be ten times smaller in one model than in another, moves in proportion
/// to its size (as in Adafactor, arXiv 1804.04235, section 8).  Others begin at zero or near the identity in
/// every model.
std::vector<double> rate_scales(const model::Drafter& drafter) {
  std::vector<double> scales = drafter.target_rms();
  for (double& scale : scales) scale = scale > 0 ? scale / reference_rms : 1;
  return scales;
}

/// Appends metrics as numbers, to send them to other processes; read_metrics reads them back.
void append(const StepMetrics& metrics, std::vector<double>& numbers) {
  numbers.push_back(metrics.loss);
  numbers.insert(numbers.end(), metrics.terms.begin(), metrics.terms.end());
  numbers.push_back(static_cast<double>(metrics.answer_tokens));
  numbers.push_back(static_cast<double>(metrics.rows));
  for (const HeadMetrics& head : metrics.heads) {
    numbers.push_back(head.loss_sum);
    numbers.insert(numbers.end(), head.terms.begin(), head.terms.end());
    numbers.push_back(static_cast<double>(head.labels));
    numbers.push_back(static_cast<double>(head.in_draft_vocab));
    for (const int64_t hits : head.hits) numbers.push_back(static_cast<double>(hits));
  }
}

StepMetrics read_metrics(size_t heads, std::vector<double>::const_iterator& next) {
  const auto count = [&next] { return static_cast<int64_t>(*next++); };
  StepMetrics metrics;
  metrics.loss = *next++;
  for (double& term : metrics.terms) term = *next++;
  metrics.answer_tokens = count();
  metrics.rows = count();
  metrics.heads.resize(heads);
  for (HeadMetrics& head : metrics.heads) {
    head.loss_sum = *next++;
    for (double& term : head.terms) term = *next++;
    head.labels = count();
    head.in_draft_vocab = count();
    for (int64_t& hits : head.hits) hits = count();
  }
  return metrics;
}

}  // namespace

ObjectiveSettings objective_settings(const FitSettings& settings) {
  return {LossTerms::parse(settings.loss), settings.distill_samples,
          model::parse_dtype(settings.compute_dtype)};
}

void check_ranks(const FitSettings& settings, infer::Rank rank) {
  const int64_t micro_batches = (settings.batch + settings.micro_batch - 1) / settings.micro_batch;
  if (rank.count <= micro_batches) return;
  throw data::InputError(std::to_string(rank.count) + " processes: expected at most " +
                         std::to_string(micro_batches) + ", one for each micro-batch of a step (--batch " +
                         std::to_string(settings.batch) + " in parts of --micro-batch " +
                         std::to_string(settings.micro_batch) + "); lower --micro-batch.");
}

void StepMetrics::add(const StepMetrics& other) {
  heads.resize(other.heads.size());
  for (size_t i = 0; i < heads.size(); ++i) heads[i].add(other.heads[i]);
  loss += other.loss;
  for (size_t k = 0; k < loss_term_count; ++k) terms[k] += other.terms[k];
  answer_tokens += other.answer_tokens;
  rows += other.rows;
}

Trainer::Trainer(const FitJob& job, Communicator& ranks)
    : job_(job),
      ranks_(ranks),
      objective_(*job.drafter, job.target->view(), objective_settings(job.settings)),
      data_order_(std::ssize(job.used_samples), job.settings.batch, job.settings.seed),
      schedule_{.peak = job.settings.lr, .warmup = job.settings.warmup, .total = job.total_steps},
      feature_cache_(*job.target, objective_.taps(), job.longest_sample, job.settings.feature_cache,
                     {.target_folder = job.settings.target,
                      .feature_file = job.stored_features.empty() ? "" : job.settings.feature_file}),
      optimiser_(parameters_of(*job.drafter),
                 {.beta1 = job.settings.beta1,
                  .beta2 = job.settings.beta2,
                  .epsilon = job.settings.eps,
                  .weight_decay = job.settings.weight_decay},
                 rate_scales(*job.drafter)) {
  for (const auto& [name, parameter] : parameters_of(*job.drafter)) {
    parameters_.push_back(parameter);
    gradient_size_ += parameter.numel();
  }
  // Several processes can read a feature file but not write one: none of them computes the features of every
  // sample.
  if (!job.settings.feature_file.empty() && (ranks.is_only_rank() || !job.stored_features.empty()))
    feature_cache_.retain_for_file(job.stored_features, job.store.size(data::Split::train), job.used_samples);
}

at::TensorOptions Trainer::gradient_options() const {
  return at::TensorOptions(at::kFloat).device(job_.target->device());
}

/// Points each parameter's gradient at its slice of `gradient`, fp32 [gradient_size_].
void Trainer::bind_gradients(const at::Tensor& gradient) {
  int64_t begin = 0;
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = gradient.narrow(0, begin, parameter.numel()).view(parameter.sizes());
    begin += parameter.numel();
  }
}

/// The share of rows that are fed the drafter's own guesses (Feed): it grows linearly from 0 at the first
/// step to the value of --self-feed at the last.
double Trainer::self_feed(int64_t step) const {
  return job_.settings.self_feed * static_cast<double>(step) /
         static_cast<double>(std::max<int64_t>(job_.total_steps - 1, 1));
}

StepMetrics Trainer::forward_backward(std::span<const int64_t> indices, std::span<const double> head_scale,
                                      int64_t step) {
  const int64_t heads = job_.drafter->trained_depth();
  std::vector<data::TokenStore::Sample> samples;
  std::vector<int64_t> rows;
  for (const int64_t index : indices) {
    samples.push_back(job_.sample(index));
    rows.push_back(useful_rows(samples.back(), heads, objective_.wants_teacher_row()));
  }
  const PackedBatch batch = pack(samples, heads, objective_.wants_teacher_row());
  StepMetrics metrics;
  metrics.heads.resize(heads);
  metrics.answer_tokens = batch.supervised;
  metrics.rows = batch.rows;
  // Called for a batch without rows, too: the cache must learn which samples have none.
  const model::Features features = feature_cache_.features_of(samples, rows, indices);
  if (batch.rows == 0) return metrics;
  const Draws draws{job_.settings.seed, step, indices};
  const Feed feed{self_feed(step), &objective_.heads(), draws};
  const at::Tensor loss = objective_.loss(features, on_device(batch, job_.target->device()), feed, draws,
                                          head_scale, metrics.heads);
  if (!loss.defined()) return metrics;
  metrics.loss = loss.item<double>();
  for (int64_t i = 0; i < heads; ++i)
    for (size_t k = 0; k < loss_term_count; ++k)
      metrics.terms[k] += head_scale[i] * metrics.heads[i].terms[k];
  loss.backward();
  return metrics;
}

std::vector<int64_t> Trainer::count_labels(std::span<const int64_t> indices) const {
  std::vector<data::TokenStore::Sample> samples;
  for (const int64_t index : indices) samples.push_back(job_.sample(index));
  return count_draft_vocab_labels(samples, job_.drafter->trained_depth(), objective_.label_map());
}

/// [K]: for each head its weight in the loss, divided by its number of labels in the whole global batch.  So
/// the sum over micro-batches is the loss of the batch.
std::vector<double> Trainer::head_scale(std::span<const int64_t> labels) const {
  std::vector<double> scale(labels.size());
  for (size_t i = 0; i < scale.size(); ++i) {
    scale[i] = std::pow(job_.settings.head_decay, i) / static_cast<double>(std::max<int64_t>(labels[i], 1));
  }
  return scale;
}

/// The error message if loss or gradient of step `step` is not finite although the features are.
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

/// The sum of the metrics of all processes' micro-batches, in order of rank.
StepMetrics Trainer::sum_metrics(const std::vector<StepMetrics>& micro_batches) {
  std::vector<double> numbers;
  for (const StepMetrics& metrics : micro_batches) append(metrics, numbers);
  StepMetrics sum;
  sum.heads.resize(job_.drafter->trained_depth());
  for (const std::vector<double>& values : ranks_.all_gather(numbers)) {
    for (auto next = values.begin(); next != values.end();) sum.add(read_metrics(sum.heads.size(), next));
  }
  return sum;
}

/// A step without a label, which only older runs have (FitJob::includes_unlabelled).  It leaves the weights
/// as they are: momentum and weight decay alone must not change them.
StepMetrics Trainer::skip_unlabelled_step(int64_t step) {
  StepMetrics metrics;
  optimiser_.skip_step();
  metrics.heads.resize(job_.drafter->trained_depth());
  metrics.learning_rate = schedule_.rate(step);
  return metrics;
}

StepMetrics Trainer::step(int64_t step) {
  std::vector<int64_t> indices = data_order_.batch(step);
  for (int64_t& index : indices) index = job_.used_samples[index];
  const std::vector<int64_t> labels = count_labels(indices);
  if (std::ranges::all_of(labels, [](int64_t count) { return count == 0; }))
    return skip_unlabelled_step(step);
  const std::vector<double> scale = head_scale(labels);
  const int64_t size = job_.settings.micro_batch, count = std::ssize(indices);
  const int64_t micro_batches = (count + size - 1) / size, ranks = ranks_.rank().count;

  const auto [begin, end] = rank_share(micro_batches, ranks_.rank().number, ranks);
  std::vector<StepMetrics> own_metrics;  // of this process's micro-batches
  // Leaf i of the sum is the gradient of micro-batch i, fp32 [gradient_size_] in memory of its own.
  const at::Tensor gradient = tree_sum(begin, end, [&](int64_t i) {
    const at::Tensor part = at::zeros({gradient_size_}, gradient_options());
    bind_gradients(part);
    const auto samples = std::span(indices).subspan(i * size, std::min(size, count - i * size));
    own_metrics.push_back(forward_backward(samples, scale, step));
    return part;
  });
  StepMetrics metrics = sum_metrics(own_metrics);
  // The last step of an epoch may have fewer micro-batches than there are ranks.
  std::vector<bool> has_gradient;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto share = rank_share(micro_batches, rank, ranks);
    has_gradient.push_back(share.first < share.second);
  }
  bind_gradients(ranks_.all_reduce(gradient, has_gradient, gradient_options(), gradient_size_));

  metrics.learning_rate = schedule_.rate(step);
  metrics.gradient_norm = optimiser_.clip_gradients(job_.settings.clip);
  if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.gradient_norm)) {
    throw std::runtime_error(why_not_finite(step));
  }
  optimiser_.step(metrics.learning_rate);
  optimiser_.zero_gradients();
  return metrics;
}

}  // namespace clover::train
