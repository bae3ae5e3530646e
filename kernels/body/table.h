#pragma once

#include "kernels/body/attention.h"
#include "kernels/body/lanes.h"
#include "kernels/body/linear.h"
#include "kernels/body/rows.h"
#include "kernels/body/vocabulary.h"

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
