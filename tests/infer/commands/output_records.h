#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace clover::infer {

/// Lines of a batch job's output.
inline nlohmann::json answer(int64_t line) {
  return {{"line", line}, {"text", "answer"}, {"token_ids", {1, 2}}};
}
inline nlohmann::json failure(int64_t line) {
  return {{"line", line}, {"id", nullptr}, {"error", {{"message", "no"}}}};
}

}  // namespace clover::infer
