#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/engine/request.h"

namespace clover::infer {

/// Sums over finished requests.
struct RequestTotals {
  int64_t requests = 0;
  int64_t tokens = 0;
  int64_t passes = 0;  // decode passes, summed over sequences
  int64_t prompt_tokens = 0;
  std::vector<int64_t> accepted_histogram;  // [a] = decode passes that accepted a draft tokens

  void add(const Completion& completion);
  /// The mean acceptance length: (tokens - first token of each sequence) / passes.  Plain decoding yields 1.
  double tokens_per_step() const;
};

/// What one run of an engine produced, and what it took.
struct RunOutcome {
  EngineStats stats;
  double seconds = 0;  // wall clock, everything included
  RequestTotals all;
  std::map<std::string, RequestTotals> by_category;
  std::vector<std::vector<int64_t>> token_ids;  // of each line; its turns one after the other
  int64_t peak_memory = 0;                      // bytes

  double tokens_per_second() const;  // of decoding alone
  double read_bytes_per_second()
      const;  // weights, keys and values that decode passes read, per second of decoding
};

/// One entry of "configurations" in the --json of batch and bench: describe_growth writes the settings
/// (growth policy, budget, heads, verification, batch size), describe_outcome the figures of a run.
nlohmann::json describe_growth(const EngineOptions& options, const std::string& heads);
nlohmann::json describe_outcome(const RunOutcome& outcome);

/// Shares of the decoding time: {"target", "drafter", "grow", "verify", "host"}, which add up to 1.
nlohmann::json time_share(const EngineStats& stats);

/// The whole --json: {"machine", "build", "model_bytes", "read_bandwidth", "configurations"}.
nlohmann::json make_report(const nlohmann::json& configurations, const model::Target& target,
                           double read_bandwidth);
/// The same, measuring the bandwidth first.
nlohmann::json make_report(const nlohmann::json& configurations, const model::Target& target);
/// Bytes per second at which the target's device reads (a GPU: reads and writes) a buffer of the size of the
/// target's weights.
double measure_bandwidth(const model::Target& target);

/// Checks before the work begins that a report can be written to `file` when it ends.  InputError when it
/// cannot, and when it would overwrite one of `used` (files, or folders with the files in them).  `option`:
/// the name of the option that gives `file`, for the message.
void check_report_file(const std::string& file, const std::vector<std::string>& used,
                       const std::string& option = "--json");

/// Writes a report; does nothing when `file` is empty.
void write_report(const std::string& file, const nlohmann::json& report);

/// A histogram for people: "0: 60%  1: 25%  2: 15%".
std::string format_histogram(const std::vector<int64_t>& histogram);

}  // namespace clover::infer
