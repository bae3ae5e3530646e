#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "infer/batch/batch_output.h"
#include "infer/engine/engine.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/in_flight_line.h"
#include "infer/requests/line_reader.h"
#include "infer/requests/report.h"

namespace clover::infer {

/// The part of Engine that a batch job uses, so that tests can replace the engine.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void submit(Request request) = 0;    // InputError when the request cannot be answered
  virtual std::vector<Completion> step() = 0;  // one decoding step; returns the requests that finished
  virtual int64_t waiting() const = 0;         // requests that are queued
  virtual bool idle() const = 0;               // nothing is queued or being decoded
};

/// The engine itself (infer/engine/engine.h).
class EngineDecoder : public Decoder {
 public:
  explicit EngineDecoder(Engine& engine) : engine_(engine) {}
  void submit(Request request) override { engine_.submit(std::move(request)); }
  std::vector<Completion> step() override { return engine_.step(); }
  int64_t waiting() const override { return engine_.waiting(); }
  bool idle() const override { return engine_.idle(); }

 private:
  Engine& engine_;
};

struct BatchJobSettings {
  std::filesystem::path input;
  SamplingParams defaults;  // for fields that a line does not give
  int64_t context = 0;      // of the target, in tokens
  int64_t max_waiting = 0;  // requests queued in the engine (queue_limit); further lines are not read yet
  bool typical = false;     // verification is lossy, which records say
  std::string stats_file;   // of --stats; empty: none
  /// Whether this process answers a line; null: all lines.
  std::function<bool(int64_t line)> is_mine = nullptr;
};

/// How many requests a job queues in an engine that decodes `max_batch` at once: enough that it never waits
/// for the file.  A process that shares the input takes fewer, so that lines it cannot start soon are left to
/// the others.
int64_t queue_limit(int64_t max_batch, bool shares_input);

/// Answers the lines of a file that the output does not hold yet.  Answers are written in order of
/// completion, and memory is bounded.  A line goes from BatchParser (requests/batch_input.h) through
/// InFlightLine and the engine to BatchOutput.
class BatchJob {
 public:
  /// `prompts`, `decoder` and `output` are borrowed.  InputError when a file cannot be opened.
  BatchJob(BatchJobSettings settings, const PromptEncoder& prompts, Decoder& decoder, BatchOutput& output);

  struct Outcome {
    RequestTotals all;
    std::map<std::string, RequestTotals> by_category;
    int64_t answered = 0;      // lines
    int64_t failed = 0;        // lines
    bool interrupted = false;  // `stop` ended the run before its last line
  };

  /// Runs until all lines are answered, or until `stop` returns true, which is called between two steps.
  /// Every answer that is complete by then is in the output.  `on_step` is called after every step.
  Outcome run(const std::function<bool()>& stop, const std::function<void(const Outcome&)>& on_step);

  /// Lines read from the input so far.
  int64_t lines_read() const { return reader_.number(); }

 private:
  void submit_lines(const std::function<bool()>& stop);
  void submit_line(InFlightLine line);
  void take_completion(Completion completion);
  void fail(const BatchLine& line, const std::string& message);
  void write_failure(const BadLine& bad);
  void write_stats(const InFlightLine& line);

  BatchJobSettings settings_;
  const PromptEncoder& prompts_;
  Decoder& decoder_;
  BatchOutput& output_;
  LineReader reader_;
  BatchParser parser_;
  bool exhausted_ = false;                               // the whole input was read
  std::unordered_map<int64_t, InFlightLine> in_flight_;  // by line number
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> stats_;
  Outcome outcome_;
};

}  // namespace clover::infer
