#include "infer/batch/batch_job.h"

#include <cerrno>
#include <cstring>

#include "data/files/error.h"

namespace clover::infer {

namespace {

/// The id's JSON text exactly as in the input, since parsing would change a large number.  Its key is "id",
/// even if the line calls it "custom_id".
VerbatimFields verbatim_stats_id(const BatchLine& line) {
  const VerbatimFields id = verbatim_id(line);
  return id.empty() ? id : VerbatimFields{{"id", id.begin()->second}};
}

}  // namespace

int64_t queue_limit(int64_t max_batch, bool shares_input) {
  return shares_input ? max_batch : 4 * max_batch;
}

BatchJob::BatchJob(BatchJobSettings settings, const PromptEncoder& encoder, Decoder& decoder,
                   BatchOutput& output)
    : settings_(std::move(settings)),
      encoder_(encoder),
      decoder_(decoder),
      output_(output),
      reader_(settings_.input),
      parser_(settings_.defaults) {
  if (settings_.stats_file.empty()) return;
  // The record of --stats is written before the answer.  If a kill came between the two, the line will be
  // answered again, so its record of --stats is removed.
  keep_records(settings_.stats_file, output_.done_lines());
  stats_.reset(std::fopen(settings_.stats_file.c_str(), "abe"));
  if (!stats_) {
    throw data::InputError("--stats " + settings_.stats_file +
                           ": expected a file that can be written, found " + std::strerror(errno));
  }
}

BatchJob::Outcome BatchJob::run(const std::function<bool()>& stop,
                                const std::function<void(const Outcome&)>& on_step) {
  for (;;) {
    submit_lines(stop);
    if (decoder_.idle()) {
      outcome_.interrupted = !exhausted_;  // with input left, `stop` alone kept lines from being submitted
      break;
    }
    for (Completion& completion : decoder_.step()) take_completion(std::move(completion));
    on_step(outcome_);
    if (stop()) {
      outcome_.interrupted = !exhausted_ || !decoder_.idle();
      break;
    }
  }
  output_.sync();
  return outcome_;
}

void BatchJob::submit_lines(const std::function<bool()>& stop) {
  std::string text;
  while (!exhausted_ && decoder_.waiting() < settings_.max_waiting && !stop()) {
    if (!reader_.next(text)) {
      exhausted_ = true;
      return;
    }
    if (!reader_.too_long() && is_blank(text)) continue;
    // Lines that are answered already are parsed too: the parser sees to it that ids are unique.
    auto parsed = reader_.too_long() ? overlong_line(reader_.number(), reader_.limit())
                                     : parser_.parse(reader_.number(), text);
    if (output_.done(reader_.number()) || (settings_.is_mine && !settings_.is_mine(reader_.number())))
      continue;
    if (const BadLine* bad = std::get_if<BadLine>(&parsed)) {
      write_failure(*bad);
    } else {
      submit_line(InFlightLine(std::move(std::get<BatchLine>(parsed))));
    }
  }
}

void BatchJob::submit_line(InFlightLine line) {
  try {
    for (Request& request : line.start(encoder_, settings_.context)) decoder_.submit(std::move(request));
  } catch (const data::InputError& error) {
    return fail(line.input(), error.what());
  }
  const int64_t number = line.input().number;
  in_flight_.emplace(number, std::move(line));
}

void BatchJob::take_completion(Completion completion) {
  const auto entry = in_flight_.find(InFlightLine::line_number_of(completion.tag));
  if (entry == in_flight_.end()) return;  // another prompt of the line has failed, and so the line
  InFlightLine& line = entry->second;
  try {
    if (!completion.error.empty()) throw data::InputError(completion.error);
    outcome_.totals.add(completion);
    if (!line.input().category.empty()) outcome_.by_category[line.input().category].add(completion);
    if (auto next = line.take_answer(std::move(completion), encoder_, settings_.context)) {
      return decoder_.submit(std::move(*next));
    }
    if (!line.done()) return;
    write_stats(line);
    output_.write_text(line.input().number, line.record_text(settings_.typical), /*failed=*/false);
    ++outcome_.answered;
  } catch (const data::InputError& error) {
    fail(line.input(), error.what());
  }
  in_flight_.erase(entry);
}

void BatchJob::fail(const BatchLine& line, const std::string& message) {
  write_failure({line.number, line.id, line.openai(), message, verbatim_id(line)});
}

void BatchJob::write_failure(const BadLine& bad) {
  output_.write_text(bad.number, record_to_text(bad.record(), bad.verbatim), /*failed=*/true);
  ++outcome_.failed;
}

void BatchJob::write_stats(const InFlightLine& line) {
  if (!stats_) return;
  nlohmann::json stats = line.stats_record();
  stats["job"] = output_.job_hash();
  const std::string record = record_to_text(stats, verbatim_stats_id(line.input())) + "\n";
  if (std::fwrite(record.data(), 1, record.size(), stats_.get()) != record.size() ||
      std::fflush(stats_.get()) != 0) {
    throw std::runtime_error(settings_.stats_file + ": writing failed: " + std::strerror(errno));
  }
}

}  // namespace clover::infer
