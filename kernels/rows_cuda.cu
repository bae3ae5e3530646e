#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"
#include "kernels/device/linear_plan.h"

// Rows of a packed weight: the look-up of embeddings.
namespace clover::kernels::cuda {
namespace {

constexpr int threads = 256, at_once = 8;  // words that a thread has on their way

/// A block a row.  Of 16-bit elements a word is two: inputs 2i and 2i + 1 of an output lie side by side, and
/// panels are padded to 32 inputs.
template <bool Paired>
__global__ void __launch_bounds__(threads)
    gather_rows(const uint32_t* panels, const int64_t* ids, int inputs, void* out) {
  let_next_begin();
  wait_for_last();
  const int64_t id = ids[blockIdx.x];
  const int words = Paired ? (inputs + 1) / 2 : inputs, padded = Paired ? (inputs + 31) / 32 * 16 : inputs;
  const uint32_t* panel = panels + id / panel_outputs * padded * panel_outputs + id % panel_outputs;
  for (int first = threadIdx.x; first < words; first += at_once * threads) {
    uint32_t word[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      word[i] = first + i * threads < words ? panel[int64_t{first + i * threads} * panel_outputs] : 0;
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int at = first + i * threads;
      if (at >= words) continue;
      if constexpr (Paired) {
        uint16_t* to = static_cast<uint16_t*>(out) + blockIdx.x * int64_t{inputs} + 2 * at;
        to[0] = static_cast<uint16_t>(word[i]);
        if (2 * at + 1 < inputs) to[1] = static_cast<uint16_t>(word[i] >> 16);
      } else {
        static_cast<uint32_t*>(out)[blockIdx.x * int64_t{inputs} + at] = word[i];
      }
    }
  }
}

}  // namespace

void launch_gather_rows(const void* panels, const int64_t* ids, int64_t rows, int64_t inputs, Element element,
                        void* out, Stream stream) {
  launch("rows", element == Element::fp32 ? gather_rows<false> : gather_rows<true>, dim3(rows), threads, 0,
         stream, static_cast<const uint32_t*>(panels), ids, static_cast<int>(inputs), out);
}

}  // namespace clover::kernels::cuda
