#include "infer/requests/sampling_params.h"

#include <algorithm>
#include <cmath>

#include "data/files/error.h"
#include "data/files/json_fields.h"
#include "data/text/utf8.h"
#include "infer/requests/unsupported_params.h"

namespace clover::infer {
namespace {

using nlohmann::json;

const std::vector<std::string> sampling_param_names = {
    "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens", "stop"};

/// The value of the field `name`; null when it is absent or null.
const json* find(const json& fields, const std::string& name) {
  const auto at = fields.find(name);
  return at == fields.end() || at->is_null() ? nullptr : &*at;
}

void read_number(const json& fields, const std::string& name, const std::string& expected, double& number) {
  if (const json* value = find(fields, name)) {
    if (!value->is_number()) data::fail_value(name, expected, *value);
    number = value->get<double>();
  }
}

void read_integer(const json& fields, const std::string& name, const std::string& expected,
                  int64_t& integer) {
  if (const json* value = find(fields, name)) {
    const auto parsed = as_integer(*value);
    if (!parsed) data::fail_value(name, expected, *value);
    integer = *parsed;
  }
}

void read_stop(const json& fields, std::vector<std::string>& stop) {
  const json* value = find(fields, "stop");
  if (!value) return;
  const std::string expected = "a string or a list of strings, none of them empty";
  stop.clear();
  if (value->is_string() && value->get_ref<const std::string&>().empty())
    return;  // some clients write "" for no stop text
  for (const json& text : value->is_array() ? *value : json::array({*value})) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      data::fail_value("stop", expected, *value);
    stop.push_back(text.get<std::string>());
  }
}

}  // namespace

std::optional<int64_t> as_integer(const json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  constexpr double limit = 9007199254740992.0;  // 2^53: a double beyond it has no fraction
  const double number = value.is_number_float() ? value.get<double>() : NAN;
  if (!(std::abs(number) <= limit) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

SamplingParams read_sampling_params(const json& fields, const SamplingParams& defaults, bool strict,
                                    const std::vector<std::string>& also_known) {
  refuse_unsupported_params(fields, strict, also_known);
  SamplingParams params = defaults;
  read_number(fields, "temperature", "a number >= 0", params.rule.temperature);
  read_number(fields, "top_p", "a number above 0 and at most 1", params.rule.top_p);
  read_integer(fields, "top_k", "an integer >= 0 (0 or -1: all tokens)", params.rule.top_k);
  if (params.rule.top_k == -1) params.rule.top_k = 0;  // -1 means all tokens in vLLM and transformers
  read_number(fields, "min_p", "a number from 0 to 1", params.rule.min_p);
  read_controls(fields, params.controls);
  read_integer(fields, "max_tokens", "an integer >= 1", params.max_tokens);
  read_integer(fields, "max_completion_tokens", "an integer >= 1", params.max_tokens);
  if (const json* seed = find(fields, "seed")) {
    if (!seed->is_number_unsigned() && !as_integer(*seed))
      data::fail_value("seed", "an integer of 64 bits", *seed);
    params.seed =
        seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(*as_integer(*seed));
    params.has_own_seed = true;
  }
  read_stop(fields, params.stop);
  check_sampling(params);
  return params;
}

bool is_sampling_param(const std::string& name) {
  return std::count(sampling_param_names.begin(), sampling_param_names.end(), name) > 0 ||
         is_control_field(name);
}

void check_sampling(const SamplingParams& params) {
  const double temperature = params.rule.temperature, top_p = params.rule.top_p;
  if (!std::isfinite(temperature) || temperature < 0)
    data::fail_value("temperature", "a number >= 0", temperature);
  if (!(top_p > 0 && top_p <= 1)) data::fail_value("top_p", "a number above 0 and at most 1", top_p);
  if (params.rule.top_k < 0)
    data::fail_value("top_k", "an integer >= 0 (0 or -1: all tokens)", params.rule.top_k);
  if (const double min_p = params.rule.min_p; !(min_p >= 0 && min_p <= 1))
    data::fail_value("min_p", "a number from 0 to 1", min_p);
  check_controls(params.controls);
  if (params.max_tokens < 1) data::fail_value("max_tokens", "an integer >= 1", params.max_tokens);
  if (const auto& min_tokens = params.controls.min_tokens; min_tokens && *min_tokens > params.max_tokens)
    data::fail_value("min_tokens", "at most max_tokens (" + std::to_string(params.max_tokens) + ")",
                     *min_tokens);
  for (const std::string& stop : params.stop) {
    if (stop.empty()) throw data::InputError("stop: expected a text that is not empty, found \"\"");
    if (!data::is_utf8(stop)) throw data::InputError("stop: expected UTF-8");
  }
}

}  // namespace clover::infer
