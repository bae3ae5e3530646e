#include "kernels/weights/packed_rows.cuh"
#include "kernels/weights/packed_rows.h"

namespace clover::kernels {
using namespace cuda;
namespace {

/// One block for each row of out.
template <bool Paired>
__global__ void __launch_bounds__(gather_threads)
    gather_rows(const uint32_t* panels, const int64_t* ids, int inputs, void* out) {
  launch_dependents();
  wait_for_prior_kernel();
  each_word<Paired>(panels, ids[blockIdx.x], inputs, [&](int index, uint32_t word) {
    if constexpr (Paired) {
      uint16_t* to = static_cast<uint16_t*>(out) + blockIdx.x * int64_t{inputs} + 2 * index;
      to[0] = static_cast<uint16_t>(word);
      if (2 * index + 1 < inputs) to[1] = static_cast<uint16_t>(word >> 16);
    } else {
      static_cast<uint32_t*>(out)[blockIdx.x * int64_t{inputs} + index] = word;
    }
  });
}

}  // namespace

void run_on_gpu(const GatherCall& call, const GpuContext& context) {
  launch("rows", call.element == Element::fp32 ? gather_rows<false> : gather_rows<true>, dim3(call.rows),
         gather_threads, 0, context.stream, static_cast<const uint32_t*>(call.panels), call.ids,
         static_cast<int>(call.inputs), call.out);
}

}  // namespace clover::kernels
