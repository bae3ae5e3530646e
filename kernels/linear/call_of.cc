#include "kernels/linear/call_of.h"

#include "kernels/op/check.h"

namespace clover::kernels {

LinearCall call_of(const LinearInput& input, const PackedWeight& weight) {
  LinearCall call{};
  call.x = input.x.const_data_ptr();
  call.panels = weight.panels().const_data_ptr();
  call.rows = input.x.size(0);
  call.outputs = weight.outputs();
  call.inputs = weight.inputs();
  call.element = element_of(weight.dtype());
  if (input.norm.defined()) {
    call.norm = input.norm.const_data_ptr<float>();
    call.norm_eps = static_cast<float>(input.eps);
  }
  return call;
}

LinearCall call_of(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
                   bool accumulate) {
  LinearCall call = call_of(x, weight);
  call.bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  call.y = y.mutable_data_ptr<float>();
  call.accumulate = accumulate;
  return call;
}

LinearCall call_of(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out) {
  LinearCall call = call_of(x, gate_up);
  call.epilogue = Epilogue::silu_mul;
  call.product = out.mutable_data_ptr();
  return call;
}

LinearCall arg_max_call_of(const LinearInput& x, const PackedWeight& weight, at::Tensor& indices) {
  LinearCall call = call_of(x, weight);
  call.epilogue = Epilogue::arg_max;
  call.indices = indices.mutable_data_ptr<int64_t>();
  return call;
}

LinearCall call_of(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos, const at::Tensor& sin,
                   const at::Tensor& slots, at::Tensor& q, at::Tensor& k, at::Tensor& v) {
  const auto numbers = [](const at::Tensor& vector) {
    return vector.defined() ? vector.const_data_ptr<float>() : nullptr;
  };
  LinearCall call = call_of(x, qkv.matrix);
  call.bias = numbers(qkv.bias);
  call.epilogue = Epilogue::rope_and_store;
  call.rope = {.cos = cos.const_data_ptr<float>(),
               .sin = sin.const_data_ptr<float>(),
               .slots = slots.const_data_ptr<int64_t>(),
               .q = q.mutable_data_ptr<float>(),
               .k = k.mutable_data_ptr(),
               .v = v.mutable_data_ptr(),
               .query_heads = q.size(1),
               .kv_heads = k.size(1),
               .head_size = k.size(3),
               .page_size = k.size(2),
               .cache = element_of(k.scalar_type()),
               .query_norm = numbers(qkv.query_norm),
               .key_norm = numbers(qkv.key_norm),
               .norm_eps = static_cast<float>(qkv.norm_eps)};
  return call;
}

}  // namespace clover::kernels
