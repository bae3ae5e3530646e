#include "model/graphs/device_verification.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"

namespace clover::model {

// The vectors are joined to one tensor, so that one copy takes them to the GPU.
DeviceVerification::DeviceVerification(const UnverifiedTrees& unverified) {
  const int64_t rows = std::ssize(unverified.ids), trees = std::ssize(unverified.tree_rows);
  const int64_t tree_numbers = trees * kernels::tree_rows_size;  // i64 in all TreeRows
  const at::Tensor on_host =
      at::empty({3 * rows + tree_numbers + std::ssize(unverified.drafter_rows)}, at::kLong);
  int64_t* next = on_host.mutable_data_ptr<int64_t>();
  for (const auto* part : {&unverified.ids, &unverified.parents, &unverified.slots})
    next = std::copy(part->begin(), part->end(), next);
  // The kernel reads a TreeRows as five i64.
  next = std::copy_n(reinterpret_cast<const int64_t*>(unverified.tree_rows.data()), tree_numbers, next);
  std::copy(unverified.drafter_rows.begin(), unverified.drafter_rows.end(), next);

  const at::Tensor on_device = kernels::to_device(on_host, unverified.tokens.device());
  input_ = {unverified.tokens, on_device.narrow(0, 0, rows), on_device.narrow(0, rows, rows),
            on_device.narrow(0, 2 * rows, rows),
            on_device.narrow(0, 3 * rows, tree_numbers).view({trees, kernels::tree_rows_size})};
  output_.moves = at::empty({3, rows}, on_device.options());
  output_.drafter_rows = on_device.narrow(0, 3 * rows + tree_numbers, std::ssize(unverified.drafter_rows));
}

void DeviceVerification::launch(const PassInputs& inputs) {
  output_.next_ids = inputs.ids;
  output_.last_rows = inputs.wanted_rows;
  kernels::verify_trees(input_, output_);
}

}  // namespace clover::model
