#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"
#include "kernels/device/linear_plan.h"

// Rows of a packed weight: the look-up of embeddings.
namespace clover::kernels::cuda {
namespace {

/// A block a row.  Paired: inputs 2i and 2i + 1 of an output lie side by side, and panels are padded to 32
/// inputs.
template <class Word, bool Paired>
__global__ void gather_rows(const Word* panels, const int64_t* ids, int64_t inputs, Word* out) {
  let_next_begin();
  wait_for_last();
  const int64_t id = ids[blockIdx.x];
  const int64_t padded = Paired ? (inputs + 31) / 32 * 32 : inputs;
  const Word* panel = panels + id / panel_outputs * padded * panel_outputs;
  const int64_t output = id % panel_outputs;
  for (int64_t k = threadIdx.x; k < inputs; k += blockDim.x) {
    out[blockIdx.x * inputs + k] =
        Paired ? panel[(k / 2 * panel_outputs + output) * 2 + k % 2] : panel[k * panel_outputs + output];
  }
}

}  // namespace

void launch_gather_rows(const void* panels, const int64_t* ids, int64_t rows, int64_t inputs, Element element,
                        void* out, Stream stream) {
  if (element == Element::fp32) {
    launch("rows", gather_rows<uint32_t, false>, dim3(rows), 256, 0, stream,
           static_cast<const uint32_t*>(panels), ids, inputs, static_cast<uint32_t*>(out));
  } else {
    launch("rows", gather_rows<uint16_t, true>, dim3(rows), 256, 0, stream,
           static_cast<const uint16_t*>(panels), ids, inputs, static_cast<uint16_t*>(out));
  }
}

}  // namespace clover::kernels::cuda
