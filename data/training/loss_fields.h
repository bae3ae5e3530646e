#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace clover::data {

/// For each message under `name` whether it is supervised, by its own `weight`, `train`, `training`, `loss`
/// or `loss_mask`, or by the record's `loss_mask`, a list with a value for each message; empty without such
/// fields. InputError for values other than 0 and 1 (false and true), and for 1 at a message that is not the
/// assistant's.
std::vector<uint8_t> read_supervised_messages(const nlohmann::json& record, const char* name,
                                              size_t messages);

/// InputError when the record's own `weight` or `train` is anything but 1: such a record is left out, and
/// fractional weights are not supported.
void check_record_weight(const nlohmann::json& record);

}  // namespace clover::data
