#include "model/placement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cstring>

#include "kernels/gpu.h"

namespace clover::model {
namespace {

constexpr int64_t alignment = 16;

template <class Inputs, class Action>
void for_each(Inputs& inputs, const Action& action) {
  auto& rows = inputs.placement.rows;
  for (auto* tensor : {&inputs.ids, &inputs.placement.cos, &inputs.placement.sin, &inputs.placement.slots,
                       &rows.sequence, &rows.contiguous, &rows.path_begin, &rows.path, &rows.page_table})
    action(*tensor);
}

int64_t room(const at::Tensor& tensor) {
  return (static_cast<int64_t>(tensor.nbytes()) + alignment - 1) / alignment * alignment;
}

/// `tensor` with more of `value` behind it along its first dimension.
at::Tensor extended(const at::Tensor& tensor, int64_t size, double value) {
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] = size;
  at::Tensor longer = at::full(shape, value, tensor.options());
  longer.narrow(0, 0, tensor.size(0)).copy_(tensor);
  return longer;
}

}  // namespace

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

PassInputs to_device(const PassInputs& inputs, at::Device device) {
  if (device.is_cpu()) return inputs;
  return views_of(kernels::to_device(bytes_of(inputs), device), inputs);
}

bool PassShape::holds(const PassInputs& inputs) const {
  const kernels::AttentionRows& its = inputs.placement.rows;
  return inputs.ids.size(0) <= rows && its.page_table.size(0) < sequences &&
         its.page_table.size(1) <= pages && its.path.size(0) <= path;
}

PassInputs padded(const PassInputs& inputs, const PassShape& shape, int64_t slot) {
  TORCH_CHECK(shape.holds(inputs), "padded: the inputs are larger than the shape");
  const kernels::AttentionRows& its = inputs.placement.rows;
  const int64_t own_sequence = its.page_table.size(0);  // its pages are all 0, and never read
  PassInputs more;
  more.ids = extended(inputs.ids, shape.rows, 0);
  more.placement.cos = extended(inputs.placement.cos, shape.rows, 0);
  more.placement.sin = extended(inputs.placement.sin, shape.rows, 0);
  more.placement.slots = extended(inputs.placement.slots, shape.rows, static_cast<double>(slot));
  more.placement.rows.sequence = extended(its.sequence, shape.rows, static_cast<double>(own_sequence));
  more.placement.rows.contiguous = extended(its.contiguous, shape.rows, 0);
  more.placement.rows.path_begin =
      extended(its.path_begin, shape.rows + 1, static_cast<double>(its.path.size(0)));
  more.placement.rows.path = extended(its.path, shape.path, 0);
  at::Tensor pages = at::zeros({shape.sequences, shape.pages}, its.page_table.options());
  pages.narrow(0, 0, own_sequence).narrow(1, 0, its.page_table.size(1)).copy_(its.page_table);
  more.placement.rows.page_table = pages;
  return more;
}

}  // namespace clover::model
