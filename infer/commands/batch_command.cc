// `clover-infer batch`: answers every line of a file.  It goes on in infer/batch/batch_job.h (lines through
// the engine), infer/batch/batch_output.h (a resumable file of answers) and infer/engine/engine.h (decoding).

#include <CLI/CLI.hpp>

#include <cstdio>
#include <functional>
#include <optional>

#include "data/files/error.h"
#include "data/files/files.h"
#include "infer/batch/answer_settings.h"
#include "infer/batch/batch_job.h"
#include "infer/batch/rank_output.h"
#include "infer/batch/stats_file.h"
#include "infer/commands/batch_summary.h"
#include "infer/commands/commands.h"
#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/program/progress.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/report.h"

namespace clover::infer {
namespace {

using nlohmann::json;

struct BatchOptions {
  ModelOptions model;
  DecodeFlags decode;
  std::string input, output, stats, report;  // files
  bool retry_errors = false;
};

/// InputError when several ranks would write the same --stats file.
void check_rank(const BatchOptions& options, Rank rank) {
  if (rank.count > 1 && !options.stats.empty()) {
    throw data::InputError(
        "--stats " + options.stats + ": expected one process, found " + std::to_string(rank.count) +
        " ranks, each of which would have to write it; leave --stats out (answers to lines that "
        "are no OpenAI requests tell their steps)");
  }
}

/// InputError when two of the job's files are the same, or when one cannot be written.
void check_files(const BatchOptions& options) {
  const auto same = [](const std::string& one, const std::string& other) {
    return !one.empty() && !other.empty() && data::same_file(one, other);
  };
  const std::string run_file = run_file_of(options.output).string();
  const std::pair<const char*, const std::string*> files[] = {{"--input", &options.input},
                                                              {"--output", &options.output},
                                                              {"the settings beside --output", &run_file},
                                                              {"--stats", &options.stats},
                                                              {"--json", &options.report}};
  for (size_t i = 0; i < std::size(files); ++i) {
    for (size_t j = i + 1; j < std::size(files); ++j) {
      if (same(*files[i].second, *files[j].second)) {
        throw data::InputError(std::string(files[j].first) + " " + *files[j].second +
                               ": expected another file than that of " + files[i].first);
      }
    }
  }
  check_report_file(options.report, {options.input, options.model.target, options.model.heads});
  check_stats_file(options.stats, options.output);
}

/// Everything that answering needs.  It is complete before the first answer is written.
struct Job {
  const BatchOptions& options;
  const EngineOptions& engine_options;
  const FileSummary& input;
  const LoadedModel& model;
  Engine& engine;
  double read_bandwidth;  // of the device, bytes per second (measure_bandwidth); 0 without --json
  json run_info;          // see BatchOutput::BatchOutput
};

struct JobResult {
  BatchJob::Outcome outcome;  // lines answered and failed
  RunOutcome run;             // the figures of the report
};

/// Answers the lines that have no record in `output` yet, of these only those for which `is_mine` is true
/// (null: all).  `on_step` is called after each step with the number of lines read so far.
JobResult answer(const Job& job, BatchOutput& output, std::function<bool(int64_t line)> is_mine,
                 const std::function<void(int64_t lines_read)>& on_step) {
  EngineDecoder decoder(job.engine);
  BatchJobSettings settings{.input = job.options.input,
                            .defaults = job.options.decode.sampling,
                            .context = job.model.target->config().context,
                            .max_waiting = queue_limit(job.engine_options.max_batch, is_mine != nullptr),
                            .typical = job.engine_options.typical,
                            .stats_file = job.options.stats,
                            .is_mine = std::move(is_mine)};
  BatchJob batch_job(std::move(settings), *job.model.prompt_encoder, decoder, output);
  CostMeter cost(output, job.model.target->device());
  JobResult result;
  result.outcome = batch_job.run(interrupted, [&](const BatchJob::Outcome& so_far) {
    cost.update(so_far.totals.tokens);
    on_step(batch_job.lines_read());
  });
  result.run.stats = job.engine.stats();
  result.run.totals = result.outcome.totals;
  result.run.by_category = result.outcome.by_category;
  result.run.seconds = cost.seconds();
  result.run.peak_memory = peak_memory();
  if (result.outcome.answered > 0) cost.finish(result.run.totals.tokens);
  output.save_cost();
  job.engine.save_costs();
  return result;
}

/// Prints the figures of the run, and writes them to --json.
void report(const Job& job, const JobResult& result) {
  if (result.run.totals.requests > 0) print_figures(result.run);
  if (job.options.report.empty()) return;
  const json entry =
      batch_report_entry(job.engine_options, job.options.model.heads,
                         job.options.decode.sampling.rule.temperature, result.run, result.outcome);
  write_report(job.options.report, make_report(json::array({entry}), *job.model.target, job.read_bandwidth));
}

int print_incomplete(const char* why, const std::string& output) {
  std::fprintf(stderr, "%s: what is complete is safe in %s; the same command continues\n", why,
               output.c_str());
  return exit_interrupted;
}

/// Answers the whole input in this process.
int answer_alone(const Job& job) {
  const std::string& file = job.options.output;
  RankOutput::merge_abandoned_shards(file, job.run_info);
  BatchOutput output(file, job.run_info, job.options.retry_errors);
  const int64_t before = output.done_count();
  Progress progress("batch", job.input.filled_lines);
  progress.update(before);
  const JobResult result = answer(job, output, nullptr, [&](int64_t) {
    progress.update(output.done_count(), speed_note(job.engine.stats()));
  });
  progress.finish();
  print_counts(result.outcome, before);
  print_output_size(file, output.done_count(), output.failed_count());
  report(job, result);
  if (result.outcome.interrupted) return print_incomplete("interrupted", file);
  return output.failed_count() > 0 ? exit_some_failed : exit_done;
}

/// Answers the lines that this rank claims.  All ranks claim lines in the order of the file, so the position
/// of rank 0 in the file shows the progress of all.
int answer_as_rank(const Job& job, Rank rank) {
  const std::string& file = job.options.output;
  RankOutput output(file, rank, job.run_info, job.options.retry_errors);
  std::optional<Progress> progress;
  if (rank.number == 0) progress.emplace("batch", job.input.lines);
  const JobResult result = answer(
      job, output.shard(), [&output](int64_t line) { return output.claim(line); },
      [&](int64_t lines_read) {
        if (progress) progress->update(lines_read, speed_note(job.engine.stats()));
      });
  if (progress) progress->finish();
  const RankOutput::MergeResult merged = output.finish();
  std::fprintf(stderr, "rank %lld of %lld: ", static_cast<long long>(rank.number),
               static_cast<long long>(rank.count));
  print_counts(result.outcome, 0);
  if (merged.last) print_output_size(file, merged.done, merged.failed);
  report(job, result);
  if (result.outcome.interrupted)
    return print_incomplete("interrupted", merged.last ? file : file + ".ranks");
  if (!merged.last) return exit_done;
  if (merged.done < job.input.filled_lines)
    return print_incomplete("lines are missing that a rank had claimed and did not answer", file);
  return merged.failed > 0 ? exit_some_failed : exit_done;
}

/// Checks options and files, loads the model, creates the engine, answers (alone or as one of several ranks)
/// and reports.
int batch(BatchOptions options, const json& resolved_options) {
  EngineOptions engine_options = to_engine_options(options.decode, !options.model.heads.empty());
  const Rank rank = Rank::from_environment();
  check_rank(options, rank);
  if (rank.count > 1 && !options.report.empty()) options.report += ".rank-" + std::to_string(rank.number);
  check_files(options);
  const FileSummary input = summarise_file(options.input);
  refuse_json_array(options.input);
  watch_for_interrupts();
  const LoadedModel model = load_model(options.model);
  engine_options.end_ids = chosen_end_ids(options.decode.end_tokens, options.model.target, model);
  stop_if_interrupted();
  // Measured before the engine allocates its KV cache, so that it does not add to the job's peak memory.
  const double bandwidth = options.report.empty() ? 0 : measure_bandwidth(*model.target);
  model::Drafter* drafter =
      growth_policy(engine_options.growth.policy).drafts ? model.drafter.get() : nullptr;
  engine_options.costs = CostFile::for_target(*model.target, engine_options.graphs, engine_options.typical);
  Engine engine(*model.target, drafter, model.prompt_encoder->tokenizer(), engine_options);
  const json run_info = {
      {"settings", resolved_options},
      {"affects_output", answer_settings(options.decode, options.model.heads, engine_options, model)},
      {"input", {{"lines", input.lines}, {"hash", input.hash}}},
      {"machine", describe_machine(model.target->device())},
      {"build", describe_build()}};
  const Job job{options, engine_options, input, model, engine, bandwidth, run_info};
  return rank.count > 1 ? answer_as_rank(job, rank) : answer_alone(job);
}

/// What --help prints after the options.
constexpr const char* batch_help_footer = R"(
Lines may mix:
  {"prompt": "Once upon a time"}                           the text as it is
  {"id": 7, "messages": [{"role": "user", "content": "Hi"}]}  through the chat template
  {"turns": ["Hi", "And in French?"]}                      a conversation, answered turn by turn
  OpenAI batch requests (custom_id, method, url, body)
with their own temperature, top_p, top_k, min_p, seed, max_tokens, stop, repetition_penalty, presence_penalty,
frequency_penalty, no_repeat_ngram_size, min_tokens, logit_bias, bad_words, bad_words_ids, suppress_tokens,
begin_suppress_tokens.  Beside messages and turns, system is a message, and tools, documents and
chat_template_kwargs go to the chat template; what it does not use is an error.  A line's answer depends on nothing
but the line, these flags and the model's own generation_config.json.  A bad line becomes an error record, and the
job goes on.
A "prompt" may also be the ids of its tokens, or a list of prompts: each is answered, results are lists then
(OpenAI's choices).  Its answer goes on with its text, from the first space on.

Exit codes: 0 done, 2 bad input or settings, 3 done but some lines failed, 75 interrupted (the same command
continues), 1 anything else.

Started several times over by torchrun or Slurm, the processes share the lines as they go and leave one output;
what was interrupted may go on with any number of them.  On several machines their common file system must
support flock across machines.

Examples:
  clover-infer batch --target models/SmolLM2-135M-Instruct --heads heads-clover \
      --input questions.jsonl --output answers.jsonl --max-tokens 256
  clover-infer batch --config batch.toml --input questions.jsonl --output answers.jsonl --retry-errors
  srun -n 8 --gpus-per-task 1 clover-infer batch --device cuda --config batch.toml --input questions.jsonl \
      --output answers.jsonl
)";

}  // namespace

Action declare_batch(CLI::App& app) {
  auto options = std::make_shared<BatchOptions>();
  app.add_option("--input", options->input, "Requests, one JSON object a line (see below)")
      ->required()
      ->type_name("FILE");
  app.add_option(
         "--output", options->output,
         "Answers, one a line in order of completion; settings go to FILE.run.json; an existing one is "
         "continued")
      ->required()
      ->type_name("FILE");
  app.add_flag("--retry-errors", options->retry_errors, "Do the lines again that failed in an earlier run");
  app.add_option("--stats", options->stats, "Also write steps and accepted guesses of every request here")
      ->type_name("FILE");
  app.add_option("--json", options->report,
                 "Also write the figures of the whole run here (a rank N of several: FILE.rank-N)")
      ->type_name("FILE");
  add_model_options(app, options->model, HeadsOption::one);
  add_context_option(app, options->model);
  add_sampling_options(app, options->decode.sampling);
  add_end_option(app, options->decode);
  add_graphs_option(app, options->decode);
  add_draft_options(app, options->decode);
  add_scheduling_options(app, options->decode);
  app.footer(batch_help_footer);
  return [options, &app] { return batch(*options, resolved_settings(app)); };
}

}  // namespace clover::infer
