#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "infer/batch/batch_output.h"
#include "infer/program/rank.h"

namespace clover::infer {

/// The output of one rank of a batch job that several processes answer together.  They run on one machine, or
/// on several whose common file system supports flock across machines.  The folder OUTPUT.ranks holds one
/// shard (a file of answers) for each rank, and one empty file for each chunk of input lines that a rank has
/// claimed.  The last rank to finish merges the shards into OUTPUT and removes the folder.  An interrupted
/// job may be continued by any number of ranks, or by one process.
class RankOutput {
 public:
  /// First merges the shards of processes that no longer run.  `run_info` is as for BatchOutput, and the same
  /// for every rank.  `retry_errors`: removes error records, but only while no other rank is running.
  /// InputError as for BatchOutput, and when a running process has the same rank.
  RankOutput(std::filesystem::path output, Rank rank, nlohmann::json run_info, bool retry_errors);

  /// Whether this rank answers the input line: the line has no record yet, and this rank has claimed its
  /// chunk of lines.  Claims the chunk if no rank has.
  bool claim(int64_t line);

  /// The answers of this rank.
  BatchOutput& shard() { return *shard_; }

  struct MergeResult {
    bool last = false;   // no other rank was running, so the shards were merged
    int64_t done = 0;    // records in OUTPUT; set if `last`
    int64_t failed = 0;  // error records among them
  };
  /// Closes this rank's shard.  Merges all shards when no other rank is running.
  MergeResult finish();

  /// Merges the shards of processes that no longer run, so that a single process can continue with OUTPUT.
  /// InputError when a rank is still running.
  static void merge_abandoned_shards(const std::filesystem::path& output, const nlohmann::json& run_info);

 private:
  std::filesystem::path output_;
  nlohmann::json run_info_;
  int64_t chunk_lines_;                                    // input lines per chunk
  std::unordered_set<int64_t> done_;                       // input lines whose records are in OUTPUT
  std::unordered_set<int64_t> own_chunks_, other_chunks_;  // claimed by this rank, and by others
  std::unique_ptr<BatchOutput> shard_;
};

}  // namespace clover::infer
