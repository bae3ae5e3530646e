#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace clover::infer {

/// How many draft tokens of a kind of heads were accepted in a measurement with real heads.
struct Acceptance {
  int64_t budget = 0;          // draft tokens verified per step
  double tokens_per_step = 0;  // the target's own token included
};

/// Reads the acceptance of each kind of heads from `bench`, a --json of bench: of its configurations with a
/// fixed budget (growth policy "clover"), the first with as many rows per step (budget + 1) as one of `rows`.
/// InputError when there is none.
std::map<std::string, Acceptance> read_acceptance(const nlohmann::json& bench,
                                                  const std::vector<int64_t>& rows);

/// Projects tokens per second for each batch size, for plain decoding and for each kind of heads, from the
/// steps and drafts that run_step_bench measured.
nlohmann::json project_speed(const nlohmann::json& configurations,
                             const std::map<std::string, Acceptance>& acceptance);
/// The table that people read.
std::string projection_table(const nlohmann::json& projections);

}  // namespace clover::infer
