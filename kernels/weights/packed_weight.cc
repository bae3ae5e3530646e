#include "kernels/weights/packed_weight.h"

#include <ATen/ATen.h>

#include <cstring>

#include "kernels/cpu/rows.h"
#include "kernels/gpu/gpu.h"
#include "kernels/op/check.h"
#include "kernels/weights/large_pages.h"
#include "kernels/weights/packed_rows.h"
#include "kernels/weights/panels.h"

namespace clover::kernels {
namespace {

/// The layout of panels on the CPU: W[n, k] is element row(n) + column(k).
struct Layout {
  int64_t inputs;
  bool paired;  // as in packed_weight.h

  /// Elements of a panel, padding included.
  int64_t panel_size() const { return (paired ? (inputs + 31) / 32 * 32 : inputs) * panel_outputs; }
  int64_t row(int64_t n) const {
    return n / panel_outputs * panel_size() + n % panel_outputs * (paired ? 2 : 1);
  }
  int64_t column(int64_t k) const { return paired ? k / 2 * (2 * panel_outputs) + k % 2 : k * panel_outputs; }
};

/// Writes a row of W, `dense` [inputs], to the panels. `panel_row` points to its first element there (index
/// Layout::row).
template <class T>
void scatter_row(const T* dense, const Layout& layout, T* panel_row) {
  if (layout.paired) {
    for (int64_t k = 0; k + 2 <= layout.inputs; k += 2) {
      std::memcpy(panel_row + k * panel_outputs, dense + k, 2 * sizeof(T));
    }
    if (layout.inputs % 2 != 0) panel_row[layout.column(layout.inputs - 1)] = dense[layout.inputs - 1];
  } else {
    for (int64_t k = 0; k < layout.inputs; ++k) panel_row[k * panel_outputs] = dense[k];
  }
}

/// The reverse: reads a row of W from the panels.
template <class T>
void gather_row(const T* panel_row, const Layout& layout, T* dense) {
  for (int64_t k = 0; k < layout.inputs; ++k) dense[k] = panel_row[layout.column(k)];
}

/// Calls body with a uint16_t or uint32_t, whichever has the size of `type`.
template <class Body>
void with_word(at::ScalarType type, const Body& body) {
  if (at::elementSize(type) == 2) {
    body(uint16_t{});
  } else {
    body(uint32_t{});
  }
}

Layout layout_of(at::ScalarType type, int64_t inputs) {
  return {inputs, type == at::kBFloat16};
}

}  // namespace

PackedWeight PackedWeight::pack(at::TensorList weights) {
  TORCH_CHECK(!weights.empty(), "PackedWeight: no weights were given, expected at least one.");
  PackedWeight packed;
  packed.inputs_ = weights[0].defined() && weights[0].dim() == 2 ? weights[0].size(1) : 0;
  TORCH_CHECK(packed.inputs_ >= 1, "PackedWeight: the first weight must be a matrix [N, K] with K >= 1.");
  const at::ScalarType type = weights[0].scalar_type();
  for (const at::Tensor& weight : weights) {
    TORCH_CHECK(weight.defined() && weight.scalar_type() == type,
                "PackedWeight: the weights must share one dtype, expected ", type, ".");
    check_tensor("PackedWeight", "weight", weight.contiguous(), {-1, packed.inputs_}, std::nullopt, at::kCPU);
    packed.outputs_ += weight.size(0);
  }
  TORCH_CHECK(packed.outputs_ >= 1, "PackedWeight: the weights have no outputs, expected N >= 1.");

  const Layout layout = layout_of(type, packed.inputs_);
  const int64_t panels = panels_of(packed.outputs_);
  const auto options = weights[0].options().requires_grad(false);
  packed.panels_ = layout.paired
                       ? zeros_in_large_pages({panels, layout.panel_size() / 32, panel_outputs, 2}, options)
                       : zeros_in_large_pages({panels, packed.inputs_, panel_outputs}, options);
  int64_t first = 0;
  for (const at::Tensor& source : weights) {
    const at::Tensor weight = source.contiguous();
    with_word(type, [&](auto word) {
      using T = decltype(word);
      const T* dense = static_cast<const T*>(weight.const_data_ptr());
      T* to = static_cast<T*>(packed.panels_.mutable_data_ptr());
      parallel_for(weight.size(0), 64, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n)
          scatter_row(dense + n * layout.inputs, layout, to + layout.row(first + n));
      });
    });
    first += weight.size(0);
  }
  return packed;
}

PackedWeight PackedWeight::for_tensor_cores() const {
  PackedWeight paired = *this;
  if (dtype() != at::kHalf || panels_.dim() == 4) return paired;
  const int64_t panels = panels_.size(0), padded = (inputs_ + 31) / 32 * 32;
  at::Tensor padded_panels = at::zeros({panels, padded, panel_outputs}, panels_.options());
  padded_panels.narrow(1, 0, inputs_).copy_(panels_);
  paired.panels_ = padded_panels.view({panels, padded / 2, 2, panel_outputs}).transpose(2, 3).contiguous();
  return paired;
}

PackedWeight PackedWeight::to(at::Device device) const {
  TORCH_CHECK(defined() && panels_.is_cpu(), "PackedWeight: only a weight on the CPU can be moved.");
  if (device.is_cpu()) return *this;
  PackedWeight moved = for_tensor_cores();
  at::Tensor device_panels = at::empty(moved.panels_.sizes(), moved.panels_.options().device(device));
  // In pieces, so that upload copies one into page-locked memory while another is being transferred.
  constexpr int64_t piece = 32 << 20;  // elements
  const at::Tensor from = moved.panels_.view(-1), to = device_panels.view(-1);
  for (int64_t begin = 0; begin < from.numel(); begin += piece) {
    at::Tensor part = to.slice(0, begin, begin + piece);
    upload(from.slice(0, begin, begin + piece), part);
  }
  moved.panels_ = device_panels;
  return moved;
}

at::Tensor PackedWeight::rows(const at::Tensor& ids) const {
  TORCH_CHECK(defined(), "PackedWeight: rows were asked of an undefined weight.");
  check_tensor("PackedWeight::rows", "ids", ids, {-1}, at::kLong, panels_.device());
  const int64_t count = ids.size(0);
  at::Tensor dense = at::empty({count, inputs_}, panels_.options());
  if (on_gpu("PackedWeight::rows", panels_)) {
    const GatherCall call{.panels = panels_.const_data_ptr(),
                          .ids = ids.const_data_ptr<int64_t>(),
                          .rows = count,
                          .inputs = inputs_,
                          .element = element_of(dtype()),
                          .out = dense.mutable_data_ptr()};
    if (count > 0) run_on_gpu(call, GpuContext("rows", panels_));
    return dense;
  }
  const int64_t* id = ids.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < count; ++r) {
    TORCH_CHECK(id[r] >= 0 && id[r] < outputs_, "PackedWeight::rows: id ", id[r], " is outside [0, ",
                outputs_, ").");
  }
  const Layout layout = layout_of(dtype(), inputs_);
  with_word(dtype(), [&](auto word) {
    using T = decltype(word);
    const T* from = static_cast<const T*>(panels_.const_data_ptr());
    T* to = static_cast<T*>(dense.mutable_data_ptr());
    cpu::for_rows(count, inputs_, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) gather_row(from + layout.row(id[r]), layout, to + r * inputs_);
    });
  });
  return dense;
}

at::Tensor PackedWeight::unpack() const {
  TORCH_CHECK(defined(), "PackedWeight: unpack was asked of an undefined weight.");
  if (!panels_.is_cpu()) return rows(at::arange(outputs_, panels_.options().dtype(at::kLong))).cpu();
  at::Tensor dense = at::empty({outputs_, inputs_}, panels_.options());
  const Layout layout = layout_of(dtype(), inputs_);
  with_word(dtype(), [&](auto word) {
    using T = decltype(word);
    const T* from = static_cast<const T*>(panels_.const_data_ptr());
    T* to = static_cast<T*>(dense.mutable_data_ptr());
    parallel_for(outputs_, 64, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) gather_row(from + layout.row(n), layout, to + n * layout.inputs);
    });
  });
  return dense;
}

}  // namespace clover::kernels
