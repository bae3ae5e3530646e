#include "model/cache/placement.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "kernels/gpu/gpu.h"

namespace clover::model {
namespace {

constexpr int64_t alignment = 16;

/// Calls `action` on each tensor that is defined.
template <class Inputs, class Action>
void for_each(Inputs& inputs, const Action& action) {
  auto& rows = inputs.placement.rows;
  for (auto* tensor :
       {&inputs.ids, &inputs.placement.cos, &inputs.placement.sin, &inputs.placement.slots, &rows.sequence,
        &rows.contiguous, &rows.path_begin, &rows.path, &rows.page_table, &inputs.wanted, &inputs.trees})
    if (tensor->defined()) action(*tensor);
}

int64_t room(const at::Tensor& tensor) {
  return (static_cast<int64_t>(tensor.nbytes()) + alignment - 1) / alignment * alignment;
}

/// Fills `to` with `from` and pads it with `value`.
template <class T>
void extend(at::Tensor& to, const at::Tensor& from, T value) {
  T* const begin = to.mutable_data_ptr<T>();
  T* const end = std::copy_n(from.const_data_ptr<T>(), from.numel(), begin);
  std::fill(end, begin + to.numel(), value);
}

/// All tensors of `inputs`, which are on the CPU, packed into one of bytes, so that one copy takes them to a
/// GPU.
at::Tensor bytes_of(const PassInputs& inputs) {
  int64_t total = 0;
  for_each(inputs, [&](const at::Tensor& tensor) { total += room(tensor); });
  at::Tensor bytes = at::empty({total}, at::kByte);
  uint8_t* to = bytes.mutable_data_ptr<uint8_t>();
  for_each(inputs, [&](const at::Tensor& tensor) {
    if (tensor.nbytes() > 0) std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    to += room(tensor);
  });
  return bytes;
}

/// The inputs, of the shapes of `like`, as views of the bytes that `bytes_of` packed, on whatever device they
/// are.
PassInputs views_of(const at::Tensor& bytes, const PassInputs& like) {
  PassInputs views = like;
  int64_t begin = 0;
  for_each(views, [&](at::Tensor& tensor) {
    const at::Tensor own = bytes.narrow(0, begin, static_cast<int64_t>(tensor.nbytes()));
    begin += room(tensor);
    tensor = own.view(tensor.scalar_type()).view(tensor.sizes());
  });
  return views;
}

}  // namespace

PassInputs to_device(const PassInputs& inputs, at::Device device) {
  if (device.is_cpu()) return inputs;
  return views_of(kernels::to_device(bytes_of(inputs), device), inputs);
}

bool PassShape::holds(const PassInputs& inputs) const {
  if (inputs.ids.size(0) > rows || (inputs.wanted.defined() && inputs.wanted.size(0) > wanted)) return false;
  const kernels::AttentionRows& its = inputs.placement.rows;
  return !its.path.defined() ||
         (its.page_table.size(0) < sequences && its.page_table.size(1) <= pages && its.path.size(0) <= path);
}

PaddedInputs::PaddedInputs(const PassShape& shape, const PassInputs& like, at::Device device) {
  const auto floats = [&](int64_t rows) { return at::empty({rows, like.placement.cos.size(1)}, at::kFloat); };
  const auto ints = [](int64_t count) { return at::empty({count}, at::kInt); };
  PassInputs model;
  model.best_only = like.best_only;
  model.ids = at::empty({shape.rows}, at::kLong);
  if (like.wanted.defined()) model.wanted = at::empty({shape.wanted}, at::kLong);
  if (like.trees.defined()) model.trees = at::empty({shape.wanted, like.trees.size(1)}, at::kInt);
  if (like.placement.slots.defined())
    model.placement = {floats(shape.rows),
                       floats(shape.rows),
                       at::empty({shape.rows}, at::kLong),
                       {ints(shape.rows), ints(shape.rows), ints(shape.rows + 1), ints(shape.path),
                        at::empty({shape.sequences, shape.pages}, at::kInt)}};
  bytes_ = bytes_of(model);
  on_host_ = views_of(bytes_, model);
  bytes_on_device_ = at::empty(bytes_.sizes(), bytes_.options().device(device));
  on_device_ = views_of(bytes_on_device_, model);
}

void PaddedInputs::upload(const PassInputs& inputs, int64_t slot) {
  fill(inputs, slot);
  kernels::upload(bytes_, bytes_on_device_);
}

void PaddedInputs::fill(const PassInputs& inputs, int64_t slot) {
  extend<int64_t>(on_host_.ids, inputs.ids, 0);
  if (inputs.wanted.defined()) extend<int64_t>(on_host_.wanted, inputs.wanted, 0);
  if (inputs.trees.defined()) extend<int32_t>(on_host_.trees, inputs.trees, 0);
  if (!inputs.placement.slots.defined()) return;
  const kernels::AttentionRows& from = inputs.placement.rows;
  kernels::AttentionRows& to = on_host_.placement.rows;
  const int64_t sequences = from.page_table.size(0), pages = from.page_table.size(1);
  extend<float>(on_host_.placement.cos, inputs.placement.cos, 0);
  extend<float>(on_host_.placement.sin, inputs.placement.sin, 0);
  extend<int64_t>(on_host_.placement.slots, inputs.placement.slots, slot);
  extend<int32_t>(to.sequence, from.sequence, static_cast<int32_t>(sequences));
  extend<int32_t>(to.contiguous, from.contiguous, 0);
  extend<int32_t>(to.path_begin, from.path_begin, static_cast<int32_t>(from.path.size(0)));
  extend<int32_t>(to.path, from.path, 0);
  int32_t* table = to.page_table.mutable_data_ptr<int32_t>();
  std::fill_n(table, to.page_table.numel(), 0);
  for (int64_t i = 0; i < sequences; ++i)
    std::copy_n(from.page_table.const_data_ptr<int32_t>() + i * pages, pages,
                table + i * to.page_table.size(1));
}

}  // namespace clover::model
