#include "model/drafters/attention_decoder.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "kernels/gpu/gpu.h"
#include "kernels/linear/linear.h"

namespace clover::model {

AttentionDecoder::AttentionDecoder(int64_t hidden, const AttentionDecoderForm& form, double eps,
                                   at::Generator generator)
    : groups_(form.groups), eps_(eps), activation_(form.activation) {
  const auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<RmsNorm>(at::ones({hidden}), eps));
  };
  const auto linear = [&](const char* name) {
    return register_module(name, std::make_shared<Linear>(hidden, hidden, form.biases));
  };
  state_norm_ = norm("state_norm");
  if (form.token_norm) token_norm_ = norm("token_norm");
  query_ = linear("query");
  key_ = linear("key");
  value_ = linear("value");
  for (const auto& near_identity : {query_, key_}) begin_near_identity(*near_identity, generator);
}

void AttentionDecoder::forward(DraftState& state, const at::Tensor& rows, const at::Tensor& ids,
                               const kernels::PackedWeight& embedding, at::ScalarType training_dtype) const {
  if (key_value_.defined()) {
    const at::Tensor s = state.hidden.to(at::kFloat).contiguous();
    const at::Tensor normed = rows.defined() ? state_norm_->forward_rows(s, rows) : state_norm_->forward(s);
    const at::Tensor q = query_->forward(normed, training_dtype);
    state.hidden = at::empty_like(q);
    state.rounded = at::empty_like(normed);
    const kernels::KeyValues kv = table_.defined() ? kernels::KeyValues{table_, ids}
                                                   : kernels::KeyValues{keys_and_values(embedding, ids)};
    kernels::add_gated(s, rows, q, kv, groups_, eps_, activation_, state.hidden, state.rounded);
    return;
  }
  const at::Tensor e = token_embedding(embedding, ids);
  const at::Tensor s = rows_or_all(state.hidden, rows);
  const at::Tensor q = query_->forward(state_norm_->forward(s), training_dtype);
  const at::Tensor k = key_->forward(e, training_dtype);
  const at::Tensor v = value_->forward(e, training_dtype);
  const auto grouped = [this](const at::Tensor& x) { return x.view({x.size(0), groups_, -1}); };
  const at::Tensor gate =
      at::cosine_similarity(grouped(q), grouped(k), -1, eps_).unsqueeze(-1);  // [F, groups, 1]
  const at::Tensor gated = (gate * grouped(v)).flatten(1);
  state.hidden = s + (activation_ == kernels::GateActivation::silu ? at::silu(gated) : gated);
}

void AttentionDecoder::pack(at::ScalarType dtype) {
  state_norm_->pack(dtype);
  if (token_norm_) token_norm_->pack(dtype);
  query_->pack(dtype);
  key_value_ =
      kernels::PackedWeight::pack({key_->rounded(dtype), value_->rounded(dtype)}).to(key_->weight.device());
  if (key_->bias.defined()) key_value_bias_ = rounded_vector(at::cat({key_->bias, value_->bias}), dtype);
}

void AttentionDecoder::unpack() {
  state_norm_->unpack();
  if (token_norm_) token_norm_->unpack();
  query_->unpack();
  key_value_ = {};
  key_value_bias_ = table_ = at::Tensor();
}

void AttentionDecoder::tabulate(const kernels::PackedWeight& embedding) {
  const at::Device device = query_->weight.device();
  const int64_t tokens = embedding.outputs(), width = key_value_.outputs();
  const auto size = static_cast<int64_t>(c10::elementSize(key_value_.dtype()));
  if (device.is_cpu() || tokens * width * size > kernels::free_gpu_memory(device) / 16) return;
  constexpr int64_t tokens_at_once = 1024;
  table_ = at::empty({tokens, width}, at::TensorOptions(key_value_.dtype()).device(device));
  for (int64_t first = 0; first < tokens; first += tokens_at_once) {
    const int64_t end = std::min(first + tokens_at_once, tokens);
    const at::Tensor ids = at::arange(first, end, at::TensorOptions(at::kLong).device(device));
    table_.slice(0, first, end).copy_(keys_and_values(embedding, ids));
  }
}

/// The embeddings e of tokens ids[j]: [F, H].
at::Tensor AttentionDecoder::token_embedding(const kernels::PackedWeight& embedding,
                                             const at::Tensor& ids) const {
  return token_norm_ ? token_norm_->forward_rows(embedding, ids) : embedding.rows(ids);
}

/// Keys and values of tokens ids[j]: fp32 [F, 2 H].
at::Tensor AttentionDecoder::keys_and_values(const kernels::PackedWeight& embedding,
                                             const at::Tensor& ids) const {
  at::Tensor kv = at::empty({ids.size(0), key_value_.outputs()}, ids.options().dtype(at::kFloat));
  kernels::linear(token_embedding(embedding, ids).to(key_value_.dtype()), key_value_, key_value_bias_, kv);
  return kv;
}

void begin_near_identity(Linear& linear, at::Generator generator) {
  const at::NoGradGuard no_grad;
  const int64_t outputs = linear.weight.size(0), inputs = linear.weight.size(1);
  linear.weight.copy_(at::eye(outputs, inputs) + at::normal(0.0,
                                                            0.01 / std::sqrt(static_cast<double>(outputs)),
                                                            {outputs, inputs}, generator));
}

at::Tensor rows_or_all(const at::Tensor& x, const at::Tensor& rows) {
  return (rows.defined() ? x.index_select(0, rows) : x).to(at::kFloat);
}

}  // namespace clover::model
