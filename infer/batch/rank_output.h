#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "infer/batch/batch_output.h"
#include "infer/program/rank.h"

namespace clover::infer {

/// The share of one process in the output of a job that several answer, on one machine or many with a common
/// file system whose flock holds across them.  OUTPUT.ranks beside OUTPUT holds a file of answers for every
/// rank and a file for every chunk of lines that one has claimed; the last rank to finish joins the answers
/// in OUTPUT and removes the folder. Any number of ranks, or one process, may continue what was interrupted.
class RankOutput {
 public:
  /// run as for BatchOutput, the same for every rank.  Joins what ranks that are gone left behind; with
  /// `retry_errors` and no other rank at work, error records are dropped.  InputError as for BatchOutput, and
  /// when another process is this rank.
  RankOutput(std::filesystem::path output, Rank rank, nlohmann::json run, bool retry_errors);

  /// Whether this process answers that line: it is not done, and its chunk is this rank's, claimed by asking
  /// if nobody has.
  bool claim(int64_t line);

  /// Where this rank's answers go.
  BatchOutput& part() { return *part_; }

  struct Joined {
    bool last = false;  // no other rank is at work
    int64_t done = 0;   // lines in OUTPUT
    int64_t failed = 0;
  };
  /// Gives up this rank's part, which joins the others' when no other rank is at work.
  Joined finish();

  /// Before one process alone goes on with OUTPUT: joins what ranks left behind, if any did.  InputError when
  /// some are still at work.
  static void join_left_behind(const std::filesystem::path& output, const nlohmann::json& run);

 private:
  std::filesystem::path output_;
  nlohmann::json run_;
  int64_t chunk_;  // lines
  std::unordered_set<int64_t> done_, mine_, others_;
  std::unique_ptr<BatchOutput> part_;
};

}  // namespace clover::infer
