#include "infer/requests/neutral_fields.h"

#include <cmath>
#include <map>
#include <optional>

#include "infer/requests/request_fields.h"

namespace clover::infer {
namespace {

using nlohmann::json;

bool is_empty(const json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) || value == "";
}

bool names_none(const json& fields, const char* list) {
  const auto at = fields.find(list);
  return at == fields.end() || is_empty(*at);
}

}  // namespace

std::optional<int64_t> as_integer(const json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  constexpr double limit = 9007199254740992.0;  // 2^53: beyond it the fraction is rounded away
  const double number = value.is_number_float() ? value.get<double>() : NAN;
  if (!(std::abs(number) <= limit) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

bool is_neutral(const json& fields, const std::string& name, const json& value, const json& neutral) {
  if (value == neutral) return true;
  if (name == "response_format") return value.is_object() && value.value("type", json()) == "text";
  // "auto" is OpenAI's default, and there is nothing to choose from.
  if (name == "tool_choice") return value == "auto" && names_none(fields, "tools");
  if (name == "function_call") return value == "auto" && names_none(fields, "functions");
  return is_empty(neutral) && is_empty(value);
}

bool is_left_at_default(const json& fields, const std::string& name, const json& value) {
  static const std::map<std::string, json> defaults = {{"skip_special_tokens", true},
                                                       {"spaces_between_special_tokens", true},
                                                       {"include_stop_str_in_output", false},
                                                       {"add_generation_prompt", true},
                                                       {"continue_final_message", false},
                                                       {"detokenize", true},
                                                       {"early_stopping", false},
                                                       {"return_token_ids", false},
                                                       {"return_tokens_as_token_ids", false},
                                                       {"structured_outputs", json()},
                                                       {"guided_grammar", json()},
                                                       {"verbosity", "medium"},
                                                       {"web_search_options", json()}};
  if (name == "add_special_tokens") return value == !fields.contains("messages");  // a template writes them
  const auto known = defaults.find(name);
  return known != defaults.end() && is_neutral(fields, name, value, known->second);
}

}  // namespace clover::infer
