#include "model/cache/placement.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "kernels/gpu/gpu.h"

namespace clover::model {
namespace {

constexpr int64_t alignment = 16;  // of each tensor among the packed bytes

/// Calls `action` on each tensor of `inputs` that is defined, always in the same order.
template <class Inputs, class Action>
void for_each(Inputs& inputs, const Action& action) {
  auto& rows = inputs.placement.rows;
  for (auto* tensor :
       {&inputs.ids, &inputs.placement.cos, &inputs.placement.sin, &inputs.placement.slots, &rows.sequence,
        &rows.contiguous, &rows.path_begin, &rows.path, &rows.page_table, &inputs.wanted_rows, &inputs.trees})
    if (tensor->defined()) action(*tensor);
}

/// The bytes that a tensor takes among the packed ones.
int64_t aligned_bytes(const at::Tensor& tensor) {
  return (static_cast<int64_t>(tensor.nbytes()) + alignment - 1) / alignment * alignment;
}

/// Copies `from` to the beginning of `to`, and fills the elements after it with `value`.
template <class T>
void copy_padded(at::Tensor& to, const at::Tensor& from, T value) {
  T* const begin = to.mutable_data_ptr<T>();
  T* const end = std::copy_n(from.const_data_ptr<T>(), from.numel(), begin);
  std::fill(end, begin + to.numel(), value);
}

/// All tensors of `inputs`, which are on the CPU, packed into one u8 tensor, so that one copy takes them to a
/// GPU.
at::Tensor bytes_of(const PassInputs& inputs) {
  int64_t total = 0;
  for_each(inputs, [&](const at::Tensor& tensor) { total += aligned_bytes(tensor); });
  at::Tensor bytes = at::empty({total}, at::kByte);
  uint8_t* to = bytes.mutable_data_ptr<uint8_t>();
  for_each(inputs, [&](const at::Tensor& tensor) {
    if (tensor.nbytes() > 0) std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    to += aligned_bytes(tensor);
  });
  return bytes;
}

/// The inverse of bytes_of: inputs of the shapes of `like`, as views of `bytes`, which may be on any device.
PassInputs views_of(const at::Tensor& bytes, const PassInputs& like) {
  PassInputs views = like;
  int64_t begin = 0;
  for_each(views, [&](at::Tensor& tensor) {
    const at::Tensor part = bytes.narrow(0, begin, static_cast<int64_t>(tensor.nbytes()));
    begin += aligned_bytes(tensor);
    tensor = part.view(tensor.scalar_type()).view(tensor.sizes());
  });
  return views;
}

}  // namespace

PassInputs to_device(const PassInputs& inputs, at::Device device) {
  if (device.is_cpu()) return inputs;
  return views_of(kernels::to_device(bytes_of(inputs), device), inputs);
}

bool PassShape::holds(const PassInputs& inputs) const {
  if (inputs.ids.size(0) > rows || (inputs.wanted_rows.defined() && inputs.wanted_rows.size(0) > wanted_rows))
    return false;
  const kernels::AttentionRows& attention = inputs.placement.rows;
  return !attention.path.defined() ||
         (attention.page_table.size(0) < sequences && attention.page_table.size(1) <= pages &&
          attention.path.size(0) <= path);
}

PaddedInputs::PaddedInputs(const PassShape& shape, const PassInputs& like, at::Device device) {
  const auto floats = [&](int64_t rows) { return at::empty({rows, like.placement.cos.size(1)}, at::kFloat); };
  const auto ints = [](int64_t count) { return at::empty({count}, at::kInt); };
  PassInputs padded;  // on the CPU
  padded.arg_max_only = like.arg_max_only;
  padded.ids = at::empty({shape.rows}, at::kLong);
  if (like.wanted_rows.defined()) padded.wanted_rows = at::empty({shape.wanted_rows}, at::kLong);
  if (like.trees.defined()) padded.trees = at::empty({shape.wanted_rows, like.trees.size(1)}, at::kInt);
  if (like.placement.slots.defined())
    padded.placement = {floats(shape.rows),
                        floats(shape.rows),
                        at::empty({shape.rows}, at::kLong),
                        {ints(shape.rows), ints(shape.rows), ints(shape.rows + 1), ints(shape.path),
                         at::empty({shape.sequences, shape.pages}, at::kInt)}};
  bytes_ = bytes_of(padded);
  on_host_ = views_of(bytes_, padded);
  bytes_on_device_ = at::empty(bytes_.sizes(), bytes_.options().device(device));
  on_device_ = views_of(bytes_on_device_, padded);
}

void PaddedInputs::upload(const PassInputs& inputs, int64_t padding_slot) {
  fill_host_buffer(inputs, padding_slot);
  kernels::upload(bytes_, bytes_on_device_);
}

void PaddedInputs::fill_host_buffer(const PassInputs& inputs, int64_t padding_slot) {
  copy_padded<int64_t>(on_host_.ids, inputs.ids, 0);
  if (inputs.wanted_rows.defined()) copy_padded<int64_t>(on_host_.wanted_rows, inputs.wanted_rows, 0);
  if (inputs.trees.defined()) copy_padded<int32_t>(on_host_.trees, inputs.trees, 0);
  if (!inputs.placement.slots.defined()) return;
  const kernels::AttentionRows& from = inputs.placement.rows;
  kernels::AttentionRows& to = on_host_.placement.rows;
  const int64_t sequences = from.page_table.size(0), pages = from.page_table.size(1);
  copy_padded<float>(on_host_.placement.cos, inputs.placement.cos, 0);
  copy_padded<float>(on_host_.placement.sin, inputs.placement.sin, 0);
  copy_padded<int64_t>(on_host_.placement.slots, inputs.placement.slots, padding_slot);
  copy_padded<int32_t>(to.sequence, from.sequence, static_cast<int32_t>(sequences));
  copy_padded<int32_t>(to.contiguous, from.contiguous, 0);
  copy_padded<int32_t>(to.path_begin, from.path_begin, static_cast<int32_t>(from.path.size(0)));
  copy_padded<int32_t>(to.path, from.path, 0);
  int32_t* table = to.page_table.mutable_data_ptr<int32_t>();
  std::fill_n(table, to.page_table.numel(), 0);
  for (int64_t i = 0; i < sequences; ++i)
    std::copy_n(from.page_table.const_data_ptr<int32_t>() + i * pages, pages,
                table + i * to.page_table.size(1));
}

}  // namespace clover::model
