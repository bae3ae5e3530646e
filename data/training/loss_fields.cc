#include "data/training/loss_fields.h"

#include <array>
#include <optional>
#include <string>

#include "data/files/error.h"
#include "data/files/json_fields.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;

constexpr std::array loss_field_names = {"weight", "train", "training", "loss_mask", "loss"};

/// Reads 0, 1, false, true, 0.0 or 1.0; InputError for other values.
bool read_loss_flag(const Json& value, const std::string& path) {
  if (value == true || value == 1 || value == 1.0) return true;
  if (value == false || value == 0 || value == 0.0) return false;
  fail_expected(path, "0 or 1, as an answer is learned or not",
                value.is_number() ? value.dump() : json_type_name(value));
}

bool is_assistant(const Json& message) {
  for (const char* key : {"role", "from"}) {
    const Json role = message.value(key, Json());
    for (const char* name : {"assistant", "gpt", "chatgpt", "bing", "bard", "model", "function_call"})
      if (role == name) return true;
  }
  return false;
}

/// Whether a message's own fields say that it is supervised; nothing when it has no such field.
std::optional<bool> message_loss_flag(const Json& message, const std::string& path) {
  std::optional<bool> supervised;
  for (const char* name : loss_field_names) {
    if (!message.contains(name) || message[name].is_null()) continue;
    const std::string field_path = path + "." + name;
    const bool flag = read_loss_flag(message[name], field_path);
    const bool is_ignored = flag && name == std::string_view("weight") && !is_assistant(message);
    if (is_ignored) continue;               // OpenAI allows "weight": 1 on messages that have no loss
    if (supervised && *supervised != flag)  // another loss field of the message says the opposite
      fail_expected(field_path, "the same as the other says", flag ? "1" : "0");
    supervised = flag;
  }
  return supervised;
}

}  // namespace

std::vector<uint8_t> read_supervised_messages(const Json& record, const char* name, size_t message_count) {
  const Json& items = record[name];
  const auto mask = record.find("loss_mask");
  const bool has_mask = mask != record.end() && !mask->is_null();
  if (has_mask && as_list(*mask, "loss_mask").size() != items.size()) {
    fail_expected(
        "loss_mask",
        ("as many values as " + std::string(name) + " (" + std::to_string(items.size()) + ")").c_str(),
        std::to_string(mask->size()));
  }
  std::vector<uint8_t> supervised;
  bool any_flag = false;
  for (size_t i = 0; i < items.size(); ++i) {
    std::string field_path = element_path(name, i);
    std::optional<bool> flag = message_loss_flag(items[i], field_path);
    if (has_mask) {
      field_path = element_path("loss_mask", i);
      const bool mask_flag = read_loss_flag((*mask)[i], field_path);
      if (flag && *flag != mask_flag)
        fail_expected(field_path, "the same as the message says", mask_flag ? "1" : "0");
      flag = mask_flag;
    }
    if (flag.value_or(false) && !is_assistant(items[i]))
      fail_expected(field_path, "0, as only what an assistant says is learned", "1");
    any_flag = any_flag || flag.has_value();
    supervised.push_back(flag.value_or(true));
  }
  if (!any_flag) return {};
  if (supervised.size() != message_count)
    throw InputError(std::string(name) + ": expected no weights of pairs of input and output, found some");
  return supervised;
}

void check_record_weight(const Json& record) {
  for (const char* name : {"weight", "train"}) {
    const auto found = record.find(name);
    if (found == record.end() || !(found->is_number() || found->is_boolean())) continue;
    if (!read_loss_flag(*found, name)) fail_expected(name, "1, or no such record", found->dump());
  }
}

}  // namespace clover::data
