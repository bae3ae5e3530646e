#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/target.h"

namespace clover::infer {

/// Cost of one step of the target by its number of rows: one sequence with `context` tokens cached, a root
/// and rows-1 tree rows behind it, logits and arg-max of all.  Row counts alternate within a round; `seconds`
/// is the median.  Returns the "configurations" of the JSON contract: {"rows", "context", "bytes_read",
/// "seconds", "rounds"}. InputError when a row count does not fit the model's context.
nlohmann::json run_row_bench(const model::Target& target, const std::vector<int64_t>& rows, int64_t context,
                             int64_t rounds);

/// For people; read_bandwidth in bytes a second.
std::string row_bench_table(const nlohmann::json& configurations, double read_bandwidth);

}  // namespace clover::infer
