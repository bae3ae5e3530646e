#include "infer/bench/training_cost.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

namespace clover::infer {
namespace {

using nlohmann::json;

/// The number at `path`, if it is one from 0 to 1e24: more is nonsense, and sums would overflow.
std::optional<double> number_at(const json& object, const char* path) {
  const json::json_pointer pointer(path);
  if (!object.contains(pointer) || !object.at(pointer).is_number()) return std::nullopt;
  const double number = object.at(pointer);
  return number >= 0 && number <= 1e24 ? std::optional(number) : std::nullopt;
}

std::string rounded(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", number);
  return text;
}

/// Of seconds or joules of the run: of all its steps, where best/ holds an earlier one.
std::optional<double> number_of_run(const json& heads_config, const std::string& name) {
  const auto whole = number_at(heads_config, ("/training/run/" + name).c_str());
  return whole ? whole : number_at(heads_config, ("/training/" + name).c_str());
}

void add_sources(const json& heads_config, TrainingCost& cost) {
  const json::json_pointer sources("/training/data/sources");
  if (!heads_config.contains(sources) || !heads_config.at(sources).is_array()) return;
  for (const json& source : heads_config.at(sources)) {
    if (!source.is_object()) continue;
    const auto seconds = number_at(source, "/took/seconds");
    cost.unrecorded_sources += !seconds;
    cost.answers_seconds += seconds.value_or(0);
    const double joules = number_at(source, "/took/joules").value_or(0);
    cost.joules = joules > 0 && cost.joules > 0 ? cost.joules + joules : 0;
  }
}

/// Adds what the heads took that a run began with (`fit --init-heads`).
void add_initial_heads(const json& heads_config, TrainingCost& cost) {
  if (!heads_config.contains(json::json_pointer("/training/initial_heads"))) return;
  const auto of = [&](const char* name) {
    return number_at(heads_config, (std::string("/training/initial_heads/") + name).c_str()).value_or(0);
  };
  cost.answers_seconds += of("answers_seconds");
  cost.prepare_seconds += of("prepare_seconds");
  cost.fit_seconds += of("fit_seconds");
  cost.evaluation_seconds += of("evaluation_seconds");
  cost.operations += of("operations");
  cost.joules = cost.joules > 0 && of("joules") > 0 ? cost.joules + of("joules") : 0;
}

/// "saved after 20000 tokens, 100 answers of this length", of an entry with "break_even_tokens".
std::string saved_after(const json& entry) {
  if (entry.at("break_even_tokens").is_null()) return "never saved";
  const double tokens = entry.at("break_even_tokens");
  const double requests = entry.value("requests", 0.0), answered_tokens = entry.value("tokens", 0.0);
  const std::string text = "saved after " + rounded(tokens) + " tokens";
  // An answer's first token comes from reading the prompt; tokens/s are of the others.
  if (requests <= 0 || answered_tokens <= requests) return text;
  return text + ", " + rounded(tokens * requests / (answered_tokens - requests)) + " answers of this length";
}

/// What the answers took, of the entry's "training_cost".
std::string answers_text(const json& cost) {
  const double seconds = cost.at("answers_seconds");
  const int64_t unrecorded = cost.value("unrecorded_sources", int64_t{0});
  if (seconds == 0) return "not recorded";
  return rounded(seconds) + " s" +
         (unrecorded > 0 ? " and those of " + std::to_string(unrecorded) + " files not recorded" : "");
}

}  // namespace

std::optional<TrainingCost> training_cost(const json& heads_config) {
  const auto seconds = number_of_run(heads_config, "seconds");
  const auto device_seconds = number_of_run(heads_config, "device_seconds");
  if (!device_seconds) return std::nullopt;
  TrainingCost cost;
  // Heads of early versions record only the sum over processes.
  cost.fit_seconds = seconds.value_or(
      *device_seconds / std::max(1.0, number_at(heads_config, "/training/processes").value_or(1)));
  cost.evaluation_seconds = number_of_run(heads_config, "evaluation_seconds").value_or(0);
  cost.operations = number_of_run(heads_config, "operations").value_or(0);
  cost.prepare_seconds = number_at(heads_config, "/training/data/took/seconds").value_or(0);
  cost.joules = number_of_run(heads_config, "joules").value_or(0);
  const json::json_pointer from_file("/training/features_from_file");
  cost.features_from_file = heads_config.contains(from_file) && heads_config.at(from_file) == true;
  add_sources(heads_config, cost);
  add_initial_heads(heads_config, cost);
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
  if (cost.unrecorded_sources > 0) object["unrecorded_sources"] = cost.unrecorded_sources;
  if (cost.features_from_file) object["features_from_file"] = true;
  return object;
}

std::optional<double> break_even_tokens(const TrainingCost& cost, double plain_tokens_per_second,
                                        double tokens_per_second) {
  if (plain_tokens_per_second <= 0 || tokens_per_second <= plain_tokens_per_second) return std::nullopt;
  const double saved = 1 / plain_tokens_per_second - 1 / tokens_per_second;  // seconds a token
  return saved > 0 ? std::optional(cost.seconds() / saved) : std::nullopt;
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
    table +=
        key.first + ": made in " + rounded(cost.at("seconds")) + " s (answers " + answers_text(cost) +
        ", fit " + rounded(cost.at("fit_seconds")) + " s" +
        (cost.contains("features_from_file") ? " without the target's features, which were stored" : "") +
        ", data and evaluations " + rounded(other_seconds) + " s); at batch " + std::to_string(key.second) +
        " under " + entry->at("draft").get<std::string>() + " that is " + saved_after(*entry) + "\n";
  }
  return table;
}

}  // namespace clover::infer
