#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_set>

#include "infer/program/energy_meter.h"
#include "infer/requests/line_reader.h"

namespace clover::infer {

/// The setting that holds the target's fingerprint.  Jobs of early versions do not have it.
inline constexpr const char* fingerprint_setting = "fingerprint";

/// Wall-clock seconds of answering, of several ranks the sum; and tokens of the answers.
struct AnsweringCost {
  double seconds = 0;
  int64_t tokens = 0;
  double joules = 0;  // by EnergyMeter; 0: not known

  /// Of both together.  The energy is known if it is known of each part that took time.
  AnsweringCost operator+(const AnsweringCost& other) const;
};
/// {"seconds", "tokens", "joules" if known}, as a run file and store.json hold them.
nlohmann::json to_json(const AnsweringCost& cost);
/// "took" of a run file's content; nothing where it is missing or no pair of numbers from 0 on.
std::optional<AnsweringCost> recorded_cost(const nlohmann::json& run_info);

/// OUTPUT, the output file of a batch job, which may be killed at any moment and continued.  Each record, one
/// JSON object on a line, answers one input line, which is then done and never answered again.  The run file
/// OUTPUT.run.json beside it holds the settings of the job.
class BatchOutput {
 public:
  /// The longest record in bytes.  A record holds its input line, up to LineReader's limit, and the answer.
  static constexpr size_t max_record_bytes = 4 * LineReader::default_limit;

  /// Opens and locks the file.  Keeps the records that it holds, but not a last one that a kill cut off.
  ///   run_info      {"settings": all resolved options, "affects_output": those that answers depend on
  ///                 (answer_settings), "input": {"lines", "hash"}}
  ///   retry_errors  removes error records, so that their lines are answered again
  /// InputError, with nothing changed, when the file belongs to another input or to settings that give other
  /// answers (naming the first difference), when no job wrote it, or when another process has locked it.
  BatchOutput(std::filesystem::path file, nlohmann::json run_info, bool retry_errors);

  /// Whether the file holds the record of an input line.
  bool done(int64_t line) const { return done_.count(line) > 0; }
  const std::unordered_set<int64_t>& done_lines() const { return done_; }
  int64_t done_count() const { return static_cast<int64_t>(done_.size()); }
  int64_t failed_count() const { return failed_; }  // of these, lines with an error record
  /// A hash of the input and of the settings that answers depend on, 16 hex digits.  It is in the records of
  /// --stats too, and tells which job they belong to.
  const std::string& job_hash() const { return job_hash_; }

  /// Appends one record with one write.  std::runtime_error when the disk is full.
  void write(int64_t line, const nlohmann::json& record);
  /// The same for a record given as JSON text.  `failed`: it is an error record.
  void write_text(int64_t line, const std::string& record, bool failed);

  /// Flushes the file to the disk (fsync).
  void sync();

  /// What answering has taken in this process so far.  The run file says it as "took", as
  /// to_json(AnsweringCost), together with what earlier processes and other ranks have taken.  It is written
  /// when the answers are flushed to the disk, and by save_cost, which CostMeter calls every ten seconds.
  void set_cost(AnsweringCost own) { own_cost_ = own; }
  void save_cost();
  AnsweringCost cost() const { return earlier_cost_ + own_cost_; }

 private:
  // A file descriptor, also closed when the constructor throws; closing it releases the lock.
  struct Descriptor {
    Descriptor() = default;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor();
    int number = -1;
  };
  void read_records(bool retry_errors, int64_t input_lines);
  void write_run_info() const;

  std::filesystem::path file_;
  nlohmann::json run_info_;                // the content of the run file
  AnsweringCost earlier_cost_, own_cost_;  // see set_cost
  Descriptor descriptor_;                  // of file_
  std::unordered_set<int64_t> done_;       // input lines with a record
  int64_t failed_ = 0;                     // error records
  std::string job_hash_;
  std::chrono::steady_clock::time_point last_sync_;
};

/// See BatchOutput::job_hash; `run_info` is as for BatchOutput's constructor.
std::string job_hash_of(const nlohmann::json& run_info);

/// The path of the file that holds a job's settings: OUTPUT.run.json.
std::filesystem::path run_file_of(const std::filesystem::path& output);

/// InputError when the output `file` was not written by a batch job, or by one whose input or settings give
/// other answers than those of `run_info`; the message names the first difference.
void check_same_job(const std::filesystem::path& file, const nlohmann::json& run_info);

/// The number of the input line that a record answers, in our format or as an OpenAI batch response; 0 when
/// it is neither.
int64_t line_of_record(const nlohmann::json& record);

/// Parses an output record.  Numbers that a double cannot hold become strings.  InputError, beginning with
/// `where`, when the text is not valid JSON.
nlohmann::json parse_record(const std::string& text, const std::string& where);
/// The same, but null when the text is not valid JSON.
nlohmann::json parse_record_or_null(const std::string& text, const std::filesystem::path& file);
/// Whether an output record is an error instead of an answer.
bool is_error_record(const nlohmann::json& record);

/// Removes from a file of records those whose input line is not in `lines`, repeated ones, and a last one
/// that was cut off.  The file is rewritten only if something changes.  It need not exist.
void keep_records(const std::filesystem::path& file, const std::unordered_set<int64_t>& lines);

/// Measures what answering takes from its construction on, and tells it to the output.
class CostMeter {
 public:
  CostMeter(BatchOutput& output, at::Device device);

  double seconds() const;
  /// Tells the cost so far, for `tokens` of answers; cheap enough for each step.
  void update(int64_t tokens) { tell(tokens, std::chrono::seconds(10)); }
  /// The same with the energy of this moment.
  void finish(int64_t tokens) { tell(tokens, std::chrono::seconds(0)); }

 private:
  void tell(int64_t tokens, std::chrono::seconds max_energy_age);

  BatchOutput& output_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double saved_at_ = 0;  // seconds() when the output last wrote the cost for it
  std::optional<EnergyMeter> energy_;
};

}  // namespace clover::infer
