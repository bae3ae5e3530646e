#include "train/synthesize/answer_files.h"

#include "data/files/files.h"
#include "data/files/json_fields.h"
#include "infer/batch/answer_settings.h"
#include "infer/batch/batch_job.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/program/progress.h"
#include "infer/requests/line_reader.h"
#include "infer/requests/report.h"

namespace clover::train {
namespace {

using nlohmann::json;

infer::EngineOptions engine_options(const infer::LoadedModel& model, const infer::DecodeFlags& flags,
                                    const std::string& target_folder) {
  infer::EngineOptions options = infer::to_engine_options(flags, model.drafter != nullptr);
  options.end_ids = infer::chosen_end_ids(flags.end_tokens, target_folder, model);
  options.costs = infer::CostFile::for_target(*model.target, options.graphs, options.typical);
  return options;
}

}  // namespace

AnswerFiles::AnswerFiles(const infer::LoadedModel& model, const infer::DecodeFlags& flags,
                         const infer::ModelOptions& folders)
    : model_(model),
      flags_(flags),
      options_(engine_options(model, flags, folders.target)),
      engine_(*model.target, model.drafter.get(), model.prompt_encoder->tokenizer(), options_),
      answer_settings_(infer::answer_settings(flags_, folders.heads, options_, model)) {}

std::vector<json> AnswerFiles::answer(const std::filesystem::path& name, const std::vector<json>& requests,
                                      const infer::SamplingParams& defaults, const std::string& label) {
  const std::string input = name.string() + ".requests.jsonl", file = name.string() + ".jsonl";
  std::string text;
  for (const json& request : requests) text += data::to_json_line(request) + "\n";
  data::write_file_atomically(input, text);
  const infer::FileSummary summary = infer::summarise_file(input);
  infer::BatchOutput output(file,
                            {{"settings", json::object()},
                             {"affects_output", answer_settings_},
                             {"input", {{"lines", summary.lines}, {"hash", summary.hash}}},
                             {"machine", infer::describe_machine(model_.target->device())},
                             {"build", infer::describe_build()}},
                            /*retry_errors=*/false);
  infer::EngineDecoder decoder(engine_);
  infer::BatchJobSettings settings;
  settings.input = input;
  settings.defaults = defaults;
  settings.context = model_.target->config().context;
  settings.max_waiting = infer::queue_limit(options_.max_batch, /*shares_input=*/false);
  infer::BatchJob job(std::move(settings), *model_.prompt_encoder, decoder, output);
  infer::Progress progress(label, summary.lines, output.done_count());
  infer::CostMeter cost(output, model_.target->device());
  const infer::BatchJob::Outcome outcome =
      job.run(infer::interrupted, [&](const infer::BatchJob::Outcome& so_far) {
        cost.update(so_far.totals.tokens);
        progress.update(output.done_count(), infer::speed_note(engine_.stats()));
      });
  if (outcome.answered > 0) cost.finish(outcome.totals.tokens);
  output.save_cost();
  cost_ = cost_ + output.cost();
  progress.finish();
  if (outcome.interrupted) throw infer::Interrupted();
  std::vector<json> records(requests.size());
  infer::LineReader reader(file, infer::BatchOutput::max_record_bytes);
  while (reader.next(text)) {
    json record = infer::parse_record(text, file + ":" + std::to_string(reader.number()));
    const int64_t line = infer::line_of_record(record);
    records.at(static_cast<size_t>(line) - 1) = std::move(record);
  }
  engine_.save_costs();
  return records;
}

}  // namespace clover::train
