#pragma once

#include "kernels/attention/attention_simd.h"
#include "kernels/cpu/lanes.h"
#include "kernels/linear/linear_simd.h"
#include "kernels/rows/rows_simd.h"
#include "kernels/vocabulary/logit_row_simd.h"

namespace clover::kernels::cpu {
namespace {

const CpuBodies table = {
    .linear_bf16 = linear_of_floats,
    .linear_any = linear_of_floats,
    .attention_group = attention_group,
    .attention_merge = attention_merge,
    .rope = rope,
    .rms_norm = rms_norm,
    .add_silu = add_silu,
    .add_gated = add_gated,
    .exp = exp_one,
    .maximum = maximum,
    .block_maxima = block_maxima,
    .first_equal = first_equal,
    .sum_exp = sum_exp,
    .weigh = weigh,
};

}  // namespace
}  // namespace clover::kernels::cpu
