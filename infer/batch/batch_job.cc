#include "infer/batch/batch_job.h"

#include <cerrno>
#include <cstring>

#include "data/files/error.h"

namespace clover::infer {

namespace {

/// Under the name that it has in records of --stats.
AsWritten stats_id_as_written(const BatchLine& line) {
  const AsWritten id = id_as_written(line);
  return id.empty() ? id : AsWritten{{"id", id.begin()->second}};
}

}  // namespace

BatchJob::BatchJob(BatchJobSettings settings, const PromptEncoder& prompts, Decoder& decoder,
                   BatchOutput& output)
    : settings_(std::move(settings)),
      prompts_(prompts),
      decoder_(decoder),
      output_(output),
      reader_(settings_.input),
      parser_(settings_.defaults) {
  if (settings_.stats_file.empty()) return;
  // A record stands here before its answer is written: what a kill left without an answer would come twice.
  std::unordered_set<int64_t> done;
  for (int64_t line = 1, left = output_.done_lines(); left > 0; ++line) {
    if (output_.done(line) && done.insert(line).second) --left;
  }
  keep_records(settings_.stats_file, done);
  stats_.reset(std::fopen(settings_.stats_file.c_str(), "abe"));
  if (!stats_) {
    throw data::InputError("--stats " + settings_.stats_file +
                           ": expected a file that can be written, found " + std::strerror(errno));
  }
}

BatchJob::Outcome BatchJob::run(const std::function<bool()>& stop,
                                const std::function<void(const Outcome&)>& on_step) {
  for (;;) {
    fill(stop);
    if (decoder_.idle()) {
      outcome_.interrupted = !exhausted_;  // nothing was begun when `stop` said so
      break;
    }
    for (Completion& completion : decoder_.step()) finish(std::move(completion));
    on_step(outcome_);
    if (stop()) {
      outcome_.interrupted = !exhausted_ || !decoder_.idle();
      break;
    }
  }
  output_.sync();
  return outcome_;
}

void BatchJob::fill(const std::function<bool()>& stop) {
  std::string text;
  while (!exhausted_ && decoder_.waiting() < settings_.max_waiting && !stop()) {
    if (!reader_.next(text)) {
      exhausted_ = true;
      return;
    }
    if (!reader_.too_long() && is_blank(text)) continue;
    auto parsed = reader_.too_long() ? overlong_line(reader_.number(), reader_.limit())
                                     : parser_.parse(reader_.number(), text);  // a done line's id counts too
    if (output_.done(reader_.number()) || (settings_.mine && !settings_.mine(reader_.number()))) continue;
    if (const BadLine* bad = std::get_if<BadLine>(&parsed)) {
      write_failure(*bad);
    } else {
      start(BatchTask(std::move(std::get<BatchLine>(parsed))));
    }
  }
}

void BatchJob::start(BatchTask task) {
  try {
    for (Request& request : task.start(prompts_, settings_.context)) decoder_.submit(std::move(request));
  } catch (const data::InputError& error) {
    return fail(task.line(), error.what());
  }
  const int64_t number = task.line().number;
  tasks_.emplace(number, std::move(task));
}

void BatchJob::finish(Completion completion) {
  const auto at = tasks_.find(BatchTask::line_of(completion.tag));
  if (at == tasks_.end()) return;  // another of its prompts failed
  BatchTask& task = at->second;
  try {
    if (!completion.error.empty()) throw data::InputError(completion.error);
    outcome_.all.add(completion);
    if (!task.line().category.empty()) outcome_.by_category[task.line().category].add(completion);
    if (auto next = task.advance(std::move(completion), prompts_, settings_.context)) {
      return decoder_.submit(std::move(*next));
    }
    if (!task.done()) return;
    write_stats(task);
    output_.write_text(task.line().number, task.record_text(settings_.typical), false);
    ++outcome_.answered;
  } catch (const data::InputError& error) {
    fail(task.line(), error.what());
  }
  tasks_.erase(at);
}

void BatchJob::fail(const BatchLine& line, const std::string& message) {
  write_failure({line.number, line.id, line.openai(), message, id_as_written(line)});
}

void BatchJob::write_failure(const BadLine& bad) {
  output_.write_text(bad.number, text_of_record(bad.record(), bad.written), true);
  ++outcome_.failed;
}

void BatchJob::write_stats(const BatchTask& task) {
  if (!stats_) return;
  nlohmann::json about = task.stats_record();
  about["job"] = output_.mark();
  const std::string record = text_of_record(about, stats_id_as_written(task.line())) + "\n";
  if (std::fwrite(record.data(), 1, record.size(), stats_.get()) != record.size() ||
      std::fflush(stats_.get()) != 0) {
    throw std::runtime_error(settings_.stats_file + ": writing failed: " + std::strerror(errno));
  }
}

}  // namespace clover::infer
