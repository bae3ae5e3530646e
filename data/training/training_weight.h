#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace clover::data {

/// Which of the messages under `name` are learned, as their `weight`, `train`, `loss` and `loss_mask` or the
/// record's `loss_mask`, a list over them, say; empty where nothing says so.  Only 0 and 1 (false and true)
/// are known, and only an assistant's message can be learned: InputError for others.
std::vector<uint8_t> read_learned(const nlohmann::json& record, const char* name, size_t messages);

/// InputError where the record says of itself that nothing of it is to be learned, or but a share.
void check_weight(const nlohmann::json& record);

}  // namespace clover::data
