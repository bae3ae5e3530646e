#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/engine/request.h"

namespace clover::infer {

/// Sums over all finished requests, or over those of one category.
struct RequestTotals {
  int64_t requests = 0;
  int64_t tokens = 0;
  int64_t passes = 0;  // decode passes, summed over sequences
  int64_t prompt_tokens = 0;
  std::vector<int64_t> accepted_histogram;  // entry a: decode passes that accepted a guesses

  void add(const Completion& completion);
  /// (tokens - first token of each sequence) / passes: the mean number of tokens of a pass.  1 for plain
  /// decoding.
  double tokens_per_step() const;
};

/// What one run of an engine produced, and how long it took.
struct RunOutcome {
  EngineStats stats;
  double seconds = 0;  // wall clock, prefill included
  RequestTotals totals;
  std::map<std::string, RequestTotals> by_category;  // by BatchLine::category
  std::vector<std::vector<int64_t>> token_ids;       // one entry per line: its answers, one after the other
  int64_t peak_memory = 0;                           // bytes

  double tokens_per_second() const;  // of decoding alone
  /// Bytes of weights, keys and values that decode passes read, per second of decoding.
  double read_bytes_per_second() const;
};

/// The two parts of an entry of "configurations" in the --json of batch and bench.  describe_growth gives the
/// settings: growth policy, budget, heads, verification, batch size.  describe_outcome gives the figures of a
/// run.  `heads`: their folder; empty: none.
nlohmann::json describe_growth(const EngineOptions& options, const std::string& heads);
nlohmann::json describe_outcome(const RunOutcome& outcome);

/// Such as "412 tokens/s, 2.71 tokens/step", shown beside a progress bar.
std::string speed_note(const EngineStats& stats);

/// Shares of the decoding time, which add up to 1: {"target", "drafter", "grow", "verify", "host"}; "host" is
/// the rest.
nlohmann::json time_share(const EngineStats& stats);

/// The whole --json: {"machine", "build", "model_bytes", "read_bandwidth", "configurations"}.
nlohmann::json make_report(const nlohmann::json& configurations, const model::Target& target,
                           double read_bandwidth);
/// The same, with measure_bandwidth(target).
nlohmann::json make_report(const nlohmann::json& configurations, const model::Target& target);
/// Bytes per second of the target's device, measured with a buffer of the size of the target's weights: a CPU
/// reads it, a GPU copies it (infer/program/machine.h).
double measure_bandwidth(const model::Target& target);

/// Checks, before the work begins, that a report can be written to `file` later.  InputError when it cannot
/// be, or when it would overwrite one of `used`, the files and folders that the command reads or writes.
/// `option`: the option that names `file`, for the message.
void check_report_file(const std::string& file, const std::vector<std::string>& used,
                       const std::string& option = "--json");

/// Writes a report; does nothing when `file` is empty.
void write_report(const std::string& file, const nlohmann::json& report);

/// A histogram as a text: "0: 60%  1: 25%  2: 15%".
std::string format_histogram(const std::vector<int64_t>& histogram);

}  // namespace clover::infer
