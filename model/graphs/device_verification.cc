#include "model/graphs/device_verification.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"

namespace clover::model {

// One copy takes all that the CPU knows to the GPU.
DeviceVerification::DeviceVerification(const UnverifiedTrees& unverified) {
  const int64_t rows = std::ssize(unverified.ids), trees = std::ssize(unverified.places);
  const int64_t places = trees * kernels::tree_rows_size;
  const at::Tensor here = at::empty({3 * rows + places + std::ssize(unverified.drafter_rows)}, at::kLong);
  int64_t* next = here.mutable_data_ptr<int64_t>();
  for (const auto* part : {&unverified.ids, &unverified.parents, &unverified.slots})
    next = std::copy(part->begin(), part->end(), next);
  // A TreeRows is its five numbers, as the kernel reads them.
  next = std::copy_n(reinterpret_cast<const int64_t*>(unverified.places.data()), places, next);
  std::copy(unverified.drafter_rows.begin(), unverified.drafter_rows.end(), next);

  const at::Tensor there = kernels::to_device(here, unverified.tokens.device());
  input_ = {unverified.tokens, there.narrow(0, 0, rows), there.narrow(0, rows, rows),
            there.narrow(0, 2 * rows, rows),
            there.narrow(0, 3 * rows, places).view({trees, kernels::tree_rows_size})};
  output_.moves = at::empty({3, rows}, there.options());
  output_.drafter_rows = there.narrow(0, 3 * rows + places, std::ssize(unverified.drafter_rows));
}

void DeviceVerification::launch(const PassInputs& inputs) {
  output_.next_ids = inputs.ids;
  output_.last_rows = inputs.wanted;
  kernels::verify_trees(input_, output_);
}

}  // namespace clover::model
