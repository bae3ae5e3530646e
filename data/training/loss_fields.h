#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace clover::data {

/// For each message of the list record[name], 1 if it is supervised, else 0.  The message says so in a field
/// `weight`, `train`, `training`, `loss` or `loss_mask`, or the record does in `loss_mask`, a list with a
/// value for each message.  A message without such a field counts as 1; the result is empty if no message has
/// one.  `message_count`: how many messages were read from the list; a pair {"input", "output"} gives two,
/// and must not have such fields.  InputError for values other than 0 and 1 (false and true), and for 1 at a
/// message that is not the assistant's.
std::vector<uint8_t> read_supervised_messages(const nlohmann::json& record, const char* name,
                                              size_t message_count);

/// InputError when the record's own `weight` or `train` is false or a number other than 1.  A record of
/// weight 0 is to be left out of the file, and fractional weights are not supported.
void check_record_weight(const nlohmann::json& record);

}  // namespace clover::data
