#include "infer/bench/training_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace clover::infer {
namespace {

using nlohmann::json;

/// The number at `path`, if it is one from 0 on.
std::optional<double> number_at(const json& object, const char* path) {
  const json::json_pointer pointer(path);
  if (!object.contains(pointer) || !object.at(pointer).is_number()) return std::nullopt;
  const double number = object.at(pointer);
  return number >= 0 ? std::optional(number) : std::nullopt;
}

std::string rounded(double number) {
  return std::to_string(std::llround(number));
}

/// "saved after 20000 tokens, 100 answers of this length", of an entry with "break_even_tokens".
std::string saved_after(const json& entry) {
  if (entry.at("break_even_tokens").is_null()) return "never saved";
  const double tokens = entry.at("break_even_tokens");
  const double requests = entry.value("requests", 0.0), answered_tokens = entry.value("tokens", 0.0);
  const std::string text = "saved after " + rounded(tokens) + " tokens";
  if (requests <= 0 || answered_tokens <= 0) return text;
  return text + ", " + rounded(tokens * requests / answered_tokens) + " answers of this length";
}

}  // namespace

std::optional<TrainingCost> training_cost(const json& heads_config) {
  const auto seconds = number_at(heads_config, "/training/seconds");
  const auto device_seconds = number_at(heads_config, "/training/device_seconds");
  if (!device_seconds) return std::nullopt;
  TrainingCost cost;
  // Heads of early versions record only the sum over processes.
  cost.fit_seconds = seconds.value_or(
      *device_seconds / std::max(1.0, number_at(heads_config, "/training/processes").value_or(1)));
  cost.evaluation_seconds = number_at(heads_config, "/training/evaluation_seconds").value_or(0);
  cost.operations = number_at(heads_config, "/training/operations").value_or(0);
  cost.prepare_seconds = number_at(heads_config, "/training/data/took/seconds").value_or(0);
  cost.joules = number_at(heads_config, "/training/joules").value_or(0);
  const json::json_pointer sources("/training/data/sources");
  if (heads_config.contains(sources) && heads_config.at(sources).is_array()) {
    for (const json& source : heads_config.at(sources)) {
      if (!source.is_object()) continue;
      cost.answers_seconds += number_at(source, "/took/seconds").value_or(0);
      const double joules = number_at(source, "/took/joules").value_or(0);
      cost.joules = joules > 0 && cost.joules > 0 ? cost.joules + joules : 0;
    }
  }
  return cost;
}

json to_json(const TrainingCost& cost) {
  json object = {{"seconds", cost.seconds()},
                 {"answers_seconds", cost.answers_seconds},
                 {"prepare_seconds", cost.prepare_seconds},
                 {"fit_seconds", cost.fit_seconds},
                 {"evaluation_seconds", cost.evaluation_seconds},
                 {"operations", cost.operations}};
  if (cost.joules > 0) object["joules"] = cost.joules;
  return object;
}

std::optional<double> break_even_tokens(const TrainingCost& cost, double plain_tokens_per_second,
                                        double tokens_per_second) {
  if (plain_tokens_per_second <= 0 || tokens_per_second <= plain_tokens_per_second) return std::nullopt;
  return cost.seconds() / (1 / plain_tokens_per_second - 1 / tokens_per_second);
}

void add_break_even(json& configurations, const std::map<std::string, TrainingCost>& costs) {
  std::map<int64_t, double> plain;  // tokens/s by batch size
  for (const json& entry : configurations)
    if (entry.at("draft") == "off") plain[entry.at("batch_size")] = entry.at("tokens_per_second");
  for (json& entry : configurations) {
    if (entry.at("draft") == "off" || !entry.at("heads").is_string()) continue;
    const auto cost = costs.find(entry.at("heads").get<std::string>());
    if (cost == costs.end()) continue;
    entry["training_cost"] = to_json(cost->second);
    const auto tokens =
        break_even_tokens(cost->second, plain[entry.at("batch_size")], entry.at("tokens_per_second"));
    entry["break_even_tokens"] = tokens ? json(*tokens) : json();
  }
}

std::string break_even_table(const json& configurations) {
  std::map<std::pair<std::string, int64_t>, const json*> fastest;  // by heads and batch size
  for (const json& entry : configurations) {
    if (!entry.contains("training_cost")) continue;
    const json*& best = fastest[{entry.at("heads"), entry.at("batch_size")}];
    if (best == nullptr || entry.at("tokens_per_second") > best->at("tokens_per_second")) best = &entry;
  }
  std::string table;
  for (const auto& [key, entry] : fastest) {
    const json& cost = entry->at("training_cost");
    const double other_seconds =
        cost.at("prepare_seconds").get<double>() + cost.at("evaluation_seconds").get<double>();
    const std::string answers =
        cost.at("answers_seconds") == 0 ? "not recorded" : rounded(cost.at("answers_seconds")) + " s";
    table += key.first + ": made in " + rounded(cost.at("seconds")) + " s (answers " + answers + ", fit " +
             rounded(cost.at("fit_seconds")) + " s, data and evaluations " + rounded(other_seconds) +
             " s); at batch " + std::to_string(key.second) + " under " +
             entry->at("draft").get<std::string>() + " that is " + saved_after(*entry) + "\n";
  }
  return table;
}

}  // namespace clover::infer
