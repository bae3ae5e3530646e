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
struct Tally {
  int64_t requests = 0;
  int64_t tokens = 0;
  int64_t passes = 0;  // decode passes summed over sequences
  int64_t prompt_tokens = 0;
  std::vector<int64_t> accepted_histogram;  // [a] = passes that kept a guesses

  void add(const Completion& completion);
  /// (tokens - first token of each sequence) / passes; plain decoding is exactly 1.
  double tokens_per_step() const;
};

/// What one run of an engine did.
struct RunOutcome {
  EngineStats stats;
  double seconds = 0;  // wall clock, everything included
  Tally all;
  std::map<std::string, Tally> by_category;
  std::vector<std::vector<int64_t>> token_ids;  // of each line, its turns one after the other
  int64_t peak_memory = 0;                      // bytes

  double tokens_per_second() const;      // decoding only
  double read_bytes_per_second() const;  // what decode passes had to read by the time decoding took
};

/// Policy, budget, heads and sampling of a configuration, and figures of a run: the entries of
/// "configurations" in `--json` of batch and bench.
nlohmann::json describe_growth(const EngineOptions& options, const std::string& heads);
nlohmann::json describe_outcome(const RunOutcome& outcome);

/// Shares of decoding time: {"target", "drafter", "grow", "verify", "host"}.
nlohmann::json time_share(const EngineStats& stats);

/// {"machine", "build", "model_bytes", "read_bandwidth", "configurations"}; measures the bandwidth over a
/// buffer of the target's size where it lies (of a GPU: reading and writing at once).
nlohmann::json report_of(const nlohmann::json& configurations, const model::Target& target);
/// The same with a bandwidth that was measured before.
nlohmann::json report_of(const nlohmann::json& configurations, const model::Target& target,
                         double read_bandwidth);
/// Bytes a second at which the target's device reads (a GPU: reads and writes) a buffer of the target's size.
double bandwidth_of(const model::Target& target);

/// InputError, before the work begins, when no report could be written to `file` at its end, or when the
/// report would take the place of one of the files `taken` or of a file in one of these folders.  `option`
/// names it.
void check_report_file(const std::string& file, const std::vector<std::string>& taken,
                       const std::string& option = "--json");

/// Writes a report; "" writes nothing.
void write_report(const std::string& file, const nlohmann::json& report);

/// "0: 60% 1: 25% 2: 15%" for people.
std::string show_histogram(const std::vector<int64_t>& histogram);

}  // namespace clover::infer
