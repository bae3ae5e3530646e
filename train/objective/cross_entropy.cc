#include "train/objective/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"

namespace clover::train {
namespace {

int64_t label_rank(const float* logits, int64_t vocab, int64_t label) {
  const float own = logits[label];
  int32_t above = 0;
  for (int64_t v = 0; v < vocab; ++v) above += logits[v] > own;
  for (int64_t v = 0; v < label; ++v) above += logits[v] == own;
  return above;
}

/// labels i64 [R] on the logits' device -> ranks i64 [R] on it.
at::Tensor label_ranks_on_device(const at::Tensor& logits, const at::Tensor& labels) {
  const int64_t vocab = logits.size(1);
  if (!logits.is_cpu()) {
    const at::Tensor label = labels.unsqueeze(1), own = logits.gather(1, label);
    const at::Tensor before = at::arange(vocab, labels.options()).unsqueeze(0) < label;
    return ((logits > own) | ((logits == own) & before)).sum(1);
  }
  at::Tensor ranks = at::empty({logits.size(0)}, at::kLong);
  const float* rows = logits.const_data_ptr<float>();
  const int64_t* label = labels.const_data_ptr<int64_t>();
  int64_t* rank = ranks.mutable_data_ptr<int64_t>();
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) rank[row] = label_rank(rows + row * vocab, vocab, label[row]);
  });
  return ranks;
}

/// Returns the loss of one chunk; writes its ranks and, if `gradient` is defined, the gradient of its rows.
double chunk_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  at::Tensor ranks, const at::Tensor& gradient) {
  at::Tensor logits = at::mm(hidden.to(weight.scalar_type()), weight.t()).to(at::kFloat);
  ranks.copy_(label_ranks_on_device(logits, labels));
  logits = at::_log_softmax(logits, 1, /*half_to_float=*/false);
  const at::Tensor label = labels.unsqueeze(1), own = logits.gather(1, label).cpu();
  double loss = 0;
  for (int64_t row = 0; row < own.size(0); ++row) loss -= own.const_data_ptr<float>()[row];
  if (!gradient.defined()) return loss;
  // The gradient with respect to the logits: softmax minus the one-hot label.
  logits.exp_().scatter_add_(1, label, at::full({label.size(0), 1}, -1.0, logits.options()));
  gradient.copy_(at::mm(logits.to(weight.scalar_type()), weight));
  return loss;
}

struct ChunkedCrossEntropy : torch::autograd::Function<ChunkedCrossEntropy> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& hidden, const at::Tensor& weight,
                                                const at::Tensor& labels, int64_t chunk,
                                                bool differentiable) {
    const int64_t rows = hidden.size(0);
    const at::Tensor dense = hidden.contiguous();
    at::Tensor gradient = differentiable ? at::empty_like(dense) : at::Tensor();
    at::Tensor ranks = at::empty({rows}, labels.options());
    double sum = 0;
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const int64_t count = std::min(chunk, rows - begin);
      sum += chunk_loss(dense.narrow(0, begin, count), weight, labels.narrow(0, begin, count),
                        ranks.narrow(0, begin, count),
                        differentiable ? gradient.narrow(0, begin, count) : at::Tensor());
    }
    context->save_for_backward({gradient});
    context->mark_non_differentiable({ranks});
    return {at::zeros({}, hidden.options()).fill_(sum), ranks};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outer) {
    const at::Tensor gradient = context->get_saved_variables()[0];
    return {gradient * outer[0], {}, {}, {}, {}};
  }
};

}  // namespace

CrossEntropy chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                   const at::Tensor& labels, int64_t chunk) {
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1) &&
                  hidden.scalar_type() == at::kFloat,
              "cross-entropy of hidden ", hidden.sizes(), " against weight ", weight.sizes());
  TORCH_CHECK(labels.dim() == 1 && labels.size(0) == hidden.size(0) && labels.scalar_type() == at::kLong,
              "cross-entropy of ", hidden.size(0), " rows with labels ", labels.sizes());
  const at::Tensor dense_labels = labels.contiguous();
  const int64_t* label = dense_labels.const_data_ptr<int64_t>();
  TORCH_CHECK(
      std::all_of(label, label + labels.size(0), [&](int64_t v) { return v >= 0 && v < weight.size(0); }),
      "cross-entropy: a label lies outside a vocabulary of ", weight.size(0));
  const bool differentiable = at::GradMode::is_enabled() && hidden.requires_grad();
  auto results = ChunkedCrossEntropy::apply(hidden, weight, kernels::to_device(dense_labels, hidden.device()),
                                            chunk, differentiable);
  return {results[0], results[1].cpu()};
}

at::Tensor label_ranks(const at::Tensor& logits, const at::Tensor& labels) {
  return label_ranks_on_device(logits.contiguous(), kernels::to_device(labels.contiguous(), logits.device()))
      .cpu();
}

}  // namespace clover::train
