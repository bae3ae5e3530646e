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
  virtual bool idle() const = 0;               // no request is queued or being decoded
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
  SamplingParams defaults;  // of fields that a line does not give
  int64_t context = 0;      // of the target, in tokens
  int64_t max_waiting = 0;  // requests queued in the engine (queue_limit); lines are read only below it
  bool typical = false;     // verification is lossy; records say so
  std::string stats_file;   // of --stats; empty: none
  /// Whether this process answers a line; null: all lines.
  std::function<bool(int64_t line)> is_mine = nullptr;
};

/// How many requests a job queues in an engine that decodes `max_batch` at once: enough that the engine never
/// waits for the file.  A process that shares the input with others queues fewer, so that it leaves them the
/// lines that it could not start soon.
int64_t queue_limit(int64_t max_batch, bool shares_input);

/// Answers those lines of the input file that have no record in the output yet.  Answers are written in the
/// order of completion, and the memory used does not grow with the file.  A line goes from BatchParser
/// (infer/requests/batch_input.h) through InFlightLine (infer/requests/in_flight_line.h) and the engine to
/// BatchOutput.
class BatchJob {
 public:
  /// `encoder`, `decoder` and `output` are borrowed.  InputError when a file cannot be opened.
  BatchJob(BatchJobSettings settings, const PromptEncoder& encoder, Decoder& decoder, BatchOutput& output);

  struct Outcome {
    RequestTotals totals;                              // over all requests
    std::map<std::string, RequestTotals> by_category;  // over the requests of lines with a "category"
    int64_t answered = 0;                              // lines with an answer, of this run
    int64_t failed = 0;                                // lines with an error record, of this run
    bool interrupted = false;                          // `stop` ended the run before its last line
  };

  /// Runs until all lines are answered or `stop` returns true; `stop` is called between two steps.
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
  const PromptEncoder& encoder_;
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
