#include "kernels/device/launchers.h"
#include "kernels/device/linear_many.h"
#include "kernels/device/linear_tall.h"

// Compiled for sm_90a alone, which has these products.
namespace clover::kernels::cuda {
namespace {

template <class T, int TilesAWarp>
void launch_tall(const LinearCall& call, const ManyPlan& plan, const SplitSums& sums, Stream stream) {
  launch_whole_and_split<TallChunks<T, Tall<TilesAWarp, false>>, TallChunks<T, Tall<TilesAWarp, true>>>(
      call, plan, sums, stream);
}

template <class T>
void launch_tall(const LinearCall& call, const ManyPlan& plan, const SplitSums& sums, Stream stream) {
  switch (plan.tiles_a_warp) {
    case 20:
      return launch_tall<T, 20>(call, plan, sums, stream);
    case 24:
      return launch_tall<T, 24>(call, plan, sums, stream);
    case 30:
      return launch_tall<T, 30>(call, plan, sums, stream);
    default:
      return launch_tall<T, 32>(call, plan, sums, stream);
  }
}

}  // namespace

void launch_linear_tall(const LinearCall& call, const ManyPlan& plan, const SplitSums& sums, Stream stream) {
  if (call.element == Element::bf16) return launch_tall<Bf16>(call, plan, sums, stream);
  launch_tall<Fp16>(call, plan, sums, stream);
}

}  // namespace clover::kernels::cuda
