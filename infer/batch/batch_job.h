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
#include "infer/requests/batch_task.h"
#include "infer/requests/line_reader.h"
#include "infer/requests/report.h"

namespace clover::infer {

/// What a job needs of an engine; tests script it.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void submit(Request request) = 0;  // InputError: this request cannot be answered
  virtual std::vector<Completion> step() = 0;
  virtual int64_t waiting() const = 0;
  virtual bool idle() const = 0;
};

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
  SamplingFields defaults;
  int64_t context = 0;      // of the target, in tokens
  int64_t max_waiting = 0;  // requests queued in the engine; the rest stays in the file
  bool typical = false;
  std::string stats_file;  // "": none
  std::function<bool(int64_t line)> mine =
      nullptr;  // whether a line is this process's to answer; null: all are
};

/// Answers the lines of a file that the output does not hold yet, in order of completion, in bounded memory.
class BatchJob {
 public:
  BatchJob(BatchJobSettings settings, const PromptEncoder& prompts, Decoder& decoder, BatchOutput& output);

  struct Outcome {
    Tally all;
    std::map<std::string, Tally> by_category;
    int64_t answered = 0;
    int64_t failed = 0;
    bool interrupted = false;
  };

  /// Runs until the input is exhausted or `stop` says so, which is asked between two steps; what is complete
  /// by then is in the output.  `on_step` is called after every step.
  Outcome run(const std::function<bool()>& stop, const std::function<void(const Outcome&)>& on_step);

  int64_t lines_read() const { return reader_.number(); }

 private:
  void fill(const std::function<bool()>& stop);
  void start(BatchTask task);
  void finish(Completion completion);
  void fail(const BatchLine& line, const std::string& message);
  void write_failure(const BadLine& bad);
  void write_stats(const BatchTask& task);

  BatchJobSettings settings_;
  const PromptEncoder& prompts_;
  Decoder& decoder_;
  BatchOutput& output_;
  LineReader reader_;
  BatchParser parser_;
  bool exhausted_ = false;
  std::unordered_map<int64_t, BatchTask> tasks_;  // by line number
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> stats_;
  Outcome outcome_;
};

}  // namespace clover::infer
