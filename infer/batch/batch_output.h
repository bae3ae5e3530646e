#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>

#include "infer/requests/line_reader.h"

namespace clover::infer {

/// The setting that holds the target's fingerprint.  Jobs of early versions do not have it.
inline constexpr const char* fingerprint_setting = "fingerprint";

/// The output file of a batch job, which may be killed at any instant and continued.  A record in OUTPUT is
/// done and never written again.  OUTPUT.run.json beside it holds the settings of the job.
class BatchOutput {
 public:
  /// The longest record in bytes.  A record holds its input line, up to LineReader's limit, and the answer.
  static constexpr size_t record_limit = 4 * LineReader::default_limit;

  /// Opens and locks the file, and continues what is there: a last line that a kill cut off is removed.
  ///   run  {"settings": all resolved options, "affects_output": the settings that answers depend on,
  ///        "input": {"lines", "hash"}}
  ///   retry_errors  removes error records, so that their lines are answered again
  /// InputError, with nothing changed, when the file belongs to another input or to settings that give other
  /// answers (naming the first difference), when no job wrote it, or when another process has locked it.
  BatchOutput(std::filesystem::path file, nlohmann::json run, bool retry_errors);

  /// Whether the file holds the record of an input line.
  bool done(int64_t line) const { return done_.count(line) > 0; }
  const std::unordered_set<int64_t>& done_lines() const { return done_; }
  int64_t done_count() const { return static_cast<int64_t>(done_.size()); }
  int64_t failed_count() const { return failed_; }  // error records among them
  /// A hash of the settings that answers depend on and of the input, 16 hex digits.  Records of --stats carry
  /// it, which tells whose they are.
  const std::string& job_hash() const { return job_hash_; }

  /// Appends one record with one write.  std::runtime_error when the disk is full.
  void write(int64_t line, const nlohmann::json& record);
  /// The same for a record that is JSON text already.  `failed`: it is an error record.
  void write_text(int64_t line, const std::string& record, bool failed);

  /// Flushes the file to the disk (fsync).
  void sync();

 private:
  // A file descriptor that is closed when the constructor throws, too, which releases the lock.
  struct Descriptor {
    Descriptor() = default;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor();
    int number = -1;
  };
  void read_done(bool retry_errors, int64_t input_lines);

  std::filesystem::path file_;
  Descriptor descriptor_;
  std::unordered_set<int64_t> done_;
  int64_t failed_ = 0;
  std::string job_hash_;
  std::chrono::steady_clock::time_point synced_;
};

/// See BatchOutput::job_hash; `run` is as for BatchOutput's constructor.
std::string job_hash_of(const nlohmann::json& run);

/// The path of the file that holds a job's settings: OUTPUT.run.json.
std::filesystem::path run_file_of(const std::filesystem::path& output);

/// InputError when the output `file` was not written by a job, or by one with other answers than those of
/// `run`; the message names the first difference.
void check_same_job(const std::filesystem::path& file, const nlohmann::json& run);

/// The input line that an output record of either form answers; 0 when it is not such a record.
int64_t line_of_record(const nlohmann::json& record);

/// Parses an output record.  Numbers that a double cannot hold become texts.  InputError that begins with
/// `where`.
nlohmann::json parse_record(const std::string& text, const std::string& where);
/// The same, but null when the text is not valid JSON.
nlohmann::json parse_record_or_null(const std::string& text, const std::filesystem::path& file);
/// Whether an output record is an error instead of an answer.
bool is_error_record(const nlohmann::json& record);

/// Removes from a file of JSON lines every record whose input line is not in `lines`, repeated records, and a
/// last line that was cut off.  The file is rewritten only if something changes; a missing file stays
/// missing.
void keep_records(const std::filesystem::path& file, const std::unordered_set<int64_t>& lines);

}  // namespace clover::infer
