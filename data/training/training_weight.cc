#include "data/training/training_weight.h"

#include <array>
#include <optional>
#include <string>

#include "data/files/error.h"
#include "data/files/json_fields.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;

constexpr std::array names = {"weight", "train", "training", "loss_mask", "loss"};

/// 0 and 1, however they are written; InputError for what lies between.
bool as_switch(const Json& value, const std::string& path) {
  if (value == true || value == 1 || value == 1.0) return true;
  if (value == false || value == 0 || value == 0.0) return false;
  fail_expected(path, "0 or 1, as an answer is learned or not",
                value.is_number() ? value.dump() : kind_of(value));
}

bool is_assistant(const Json& message) {
  for (const char* key : {"role", "from"}) {
    const Json who = message.value(key, Json());
    for (const char* name : {"assistant", "gpt", "chatgpt", "bing", "bard", "model", "function_call"})
      if (who == name) return true;
  }
  return false;
}

/// What a message says of itself.
std::optional<bool> own_switch(const Json& message, const std::string& path) {
  std::optional<bool> learned;
  for (const char* name : names) {
    if (!message.contains(name) || message[name].is_null()) continue;
    const std::string here = path + "." + name;
    const bool says = as_switch(message[name], here);
    const bool weighs_nothing = says && name == std::string_view("weight") && !is_assistant(message);
    if (weighs_nothing) continue;  // of what is not learned
    if (learned && *learned != says) fail_expected(here, "the same as the other says", says ? "1" : "0");
    learned = says;
  }
  return learned;
}

}  // namespace

std::vector<uint8_t> read_learned(const Json& record, const char* name, size_t messages) {
  const Json& items = record[name];
  const auto mask = record.find("loss_mask");
  const bool masked = mask != record.end() && !mask->is_null();
  if (masked && as_list(*mask, "loss_mask").size() != items.size()) {
    fail_expected(
        "loss_mask",
        ("as many values as " + std::string(name) + " (" + std::to_string(items.size()) + ")").c_str(),
        std::to_string(mask->size()));
  }
  std::vector<uint8_t> learned;
  bool said = false;
  for (size_t i = 0; i < items.size(); ++i) {
    std::string here = element(name, i);
    std::optional<bool> says = own_switch(items[i], here);
    if (masked) {
      here = element("loss_mask", i);
      const bool here_says = as_switch((*mask)[i], here);
      if (says && *says != here_says)
        fail_expected(here, "the same as the message says", here_says ? "1" : "0");
      says = here_says;
    }
    if (says.value_or(false) && !is_assistant(items[i]))
      fail_expected(here, "0, as only what an assistant says is learned", "1");
    said = said || says.has_value();
    learned.push_back(says.value_or(true));
  }
  if (!said) return {};
  if (learned.size() != messages)
    throw InputError(std::string(name) + ": expected no weights of pairs of input and output, found some");
  return learned;
}

void check_weight(const Json& record) {
  for (const char* name : {"weight", "train"}) {
    const auto found = record.find(name);
    if (found == record.end() || !(found->is_number() || found->is_boolean())) continue;
    if (!as_switch(*found, name)) fail_expected(name, "1, or no such record", found->dump());
  }
}

}  // namespace clover::data
