#include "infer/bench/projection.h"

#include <algorithm>
#include <cstdio>

#include "data/files/error.h"

namespace clover::infer {
namespace {

using nlohmann::json;

/// Tokens per step; 0 if there were no steps.  `histogram`: [n] the number of steps in which n guesses were
/// accepted; each yielded n + 1 tokens.
double tokens_per_step(const json& histogram) {
  double steps = 0, tokens = 0;
  for (size_t accepted = 0; accepted < histogram.size(); ++accepted) {
    steps += histogram[accepted].get<double>();
    tokens += histogram[accepted].get<double>() * static_cast<double>(accepted + 1);
  }
  return steps > 0 ? tokens / steps : 0;
}

}  // namespace

std::map<std::string, Acceptance> read_acceptance(const json& bench, const std::vector<int64_t>& rows) {
  std::map<std::string, Acceptance> acceptance;
  std::string other_budgets;  // those in `bench` for which budget + 1 is not among `rows`
  try {
    for (const json& configuration : bench.at("configurations")) {
      // "draft" is the growth policy, not the kind of heads.  With the policy `clover` the budget says how
      // many rows a pass has; under `auto` that depends on the machine.
      if (configuration.value("draft", "") != "clover" || !configuration.contains("kind")) continue;
      const int64_t budget = configuration.at("budget").get<int64_t>();
      const double tokens = tokens_per_step(configuration.at("accepted_histogram"));
      if (tokens == 0) continue;
      if (std::find(rows.begin(), rows.end(), budget + 1) != rows.end())
        acceptance.try_emplace(configuration.at("kind").get<std::string>(), Acceptance{budget, tokens});
      else
        other_budgets += (other_budgets.empty() ? "" : ", ") + std::to_string(budget);
    }
  } catch (const json::exception& error) {
    throw data::InputError(std::string("--assume-acceptance: expected the --json of bench, found ") +
                           error.what());
  }
  if (acceptance.empty() && !other_budgets.empty()) {
    throw data::InputError("--assume-acceptance: it was measured with budgets of " + other_budgets +
                           "; add one of them, plus 1 for the root, to --rows");
  }
  if (acceptance.empty()) {
    throw data::InputError(
        "--assume-acceptance: expected a --json of this version's bench with --draft clover and heads, found "
        "none in it");
  }
  return acceptance;
}

json project_speed(const json& step_entries, const std::map<std::string, Acceptance>& acceptance) {
  std::map<std::pair<int64_t, int64_t>, double> pass_seconds;  // by batch size and rows per sequence
  for (const json& entry : step_entries)
    if (entry.contains("rows"))
      pass_seconds[{entry["batch_size"].get<int64_t>(), entry["rows"].get<int64_t>()}] =
          entry["seconds"].get<double>();
  json projections = json::array();
  const auto add_projection = [&](int64_t batch_size, const json& kind, const json& draft_vocab,
                                  double tokens, double seconds) {
    projections.push_back({{"batch_size", batch_size},
                           {"kind", kind},
                           {"draft_vocab", draft_vocab},
                           {"tokens_per_step", tokens},
                           {"tokens_per_second", static_cast<double>(batch_size) * tokens / seconds}});
  };
  for (const auto& [shape, seconds] : pass_seconds)
    if (shape.second == 1)  // a row per sequence: plain decoding
      add_projection(shape.first, nullptr, nullptr, 1, seconds);
  for (const json& entry : step_entries) {
    const auto assumed = entry.contains("kind") ? acceptance.find(entry["kind"]) : acceptance.end();
    if (assumed == acceptance.end()) continue;
    const int64_t batch_size = entry["batch_size"];
    add_projection(
        batch_size, entry["kind"], entry["draft_vocab"], assumed->second.tokens_per_step,
        pass_seconds.at({batch_size, assumed->second.budget + 1}) + entry["seconds"].get<double>());
  }
  return projections;
}

std::string projection_table(const json& projections) {
  std::string table =
      "A projection from the times of steps measured here and the tokens per step that trained heads reached "
      "in the --assume-acceptance file.\n"
      "batch  heads   draft vocabulary  tokens/step  tokens/s\n";
  for (const json& entry : projections) {
    char line[120];
    const bool plain = entry["kind"].is_null();
    std::snprintf(line, sizeof line, "%5lld  %-6s  %16s  %11.2f  %8.1f\n",
                  static_cast<long long>(entry["batch_size"].get<int64_t>()),
                  plain ? "none" : entry["kind"].get<std::string>().c_str(),
                  plain ? "-" : std::to_string(entry["draft_vocab"].get<int64_t>()).c_str(),
                  entry["tokens_per_step"].get<double>(), entry["tokens_per_second"].get<double>());
    table += line;
  }
  return table;
}

}  // namespace clover::infer
