#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>

#include "infer/requests/line_reader.h"

namespace clover::infer {

/// The setting that tells targets apart; jobs begun at first lack it.
inline constexpr const char* fingerprint_setting = "fingerprint";

/// The output file of a job that may be killed at any instant and continued.  OUTPUT.run.json beside it holds
/// the settings; what is in OUTPUT is done and never written again.
class BatchOutput {
 public:
  /// Records carry their input line, which may be as long as the reader's limit, and the answer.
  static constexpr size_t record_limit = 4 * LineReader::default_limit;

  /// run: {"settings": all resolved options, "affects_output": what the answers depend on, "input": {"lines",
  /// "hash"}}.  Continues what is there: a torn last line is cut off; with `retry_errors`, error records are
  /// dropped so that their lines are done again.  InputError, with nothing changed, when OUTPUT belongs to
  /// another input or to settings that give other answers, naming the first that differs; when it was not
  /// written by a job at all; or when another process is writing it.
  BatchOutput(std::filesystem::path file, nlohmann::json run, bool retry_errors);

  bool done(int64_t line) const { return done_.count(line) > 0; }
  const std::unordered_set<int64_t>& lines() const { return done_; }
  int64_t done_lines() const { return static_cast<int64_t>(done_.size()); }
  int64_t failed_lines() const { return failed_; }  // of which error records
  /// Of the job: the same for the same input and answers, 16 hex digits.  Its statistics carry it.
  const std::string& mark() const { return mark_; }

  /// Appends one record with one write.  std::runtime_error when the disk is full.
  void write(int64_t line, const nlohmann::json& record);
  /// The same of a record that is text already, `failed` when it is an error's.
  void write_text(int64_t line, const std::string& record, bool failed);

  /// Puts on disk what was written.
  void sync();

 private:
  // Closes also when the constructor refuses the file, so that its lock goes too.
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
  std::string mark_;
  std::chrono::steady_clock::time_point synced_;
};

/// The file that holds a job's settings.
std::filesystem::path run_file_of(const std::filesystem::path& output);

/// InputError, naming the first difference, when the job that writes `file` has other answers than `run`
/// would, or when no job writes it.
void check_same_job(const std::filesystem::path& file, const nlohmann::json& run);

/// Line number of an output record of either form, 0 when it is none.
int64_t line_of_record(const nlohmann::json& record);

/// A record read back, numbers that no double holds as texts; InputError begins with `where`.
nlohmann::json parse_record(const std::string& text, const std::string& where);
bool is_error_record(const nlohmann::json& record);

/// InputError when `file` holds anything but the statistics of the job whose answers go to `output`: it would
/// be lost.
void check_stats_file(const std::filesystem::path& file, const std::filesystem::path& output);

/// Keeps of a JSON-lines file only the records of `keep_line` lines, each once, and no torn last line; writes
/// it anew only when something changes.  A missing file stays missing.
void keep_records(const std::filesystem::path& file, const std::unordered_set<int64_t>& keep_line);

}  // namespace clover::infer
