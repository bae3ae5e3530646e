#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "infer/batch/batch_job.h"
#include "infer/batch/rank_output.h"
#include "infer/commands/commands.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/program/progress.h"
#include "infer/requests/decode_options.h"
#include "infer/requests/report.h"

namespace clover::infer {
namespace {

using nlohmann::json;

struct BatchOptions {
  ModelOptions model;
  DecodeOptions decode;
  std::string input, output, stats, report;
  bool retry_errors = false;
};

/// Of what the folder holds, which training writes anew under the same name; null without heads.
json hash_of_heads(const std::string& folder) {
  if (folder.empty()) return nullptr;
  return summarise_file(folder + "/model.safetensors").hash + summarise_file(folder + "/config.json").hash;
}

// What must be the same when a job continues, so that its answers are those of one uninterrupted run.  Batch
// size, threads, heads and growth are not among it: under `match` they change no token.
json affects_output(const BatchOptions& options, const EngineOptions& engine, const LoadedModel& model) {
  const SamplingFields& sampling = options.decode.sampling;
  const model::TargetConfig& config = model.target->config();
  json settings = {{"target", model.target->sampled_fingerprint()},  // all that was recorded at first
                   {fingerprint_setting, model.target->fingerprint()},
                   {"end-ids", *engine.end_ids},
                   {"context", config.context},
                   {"norm-eps", config.norm_eps},
                   {"rope", data::hex(data::fnv1a(json(model::rope_frequencies(config)).dump()))},
                   {"tokenizer", model.prompts->tokenizer().hash()},
                   {"dtype", model::dtype_name(model.target->dtype())},
                   {"template", model.prompts->template_name()},
                   {"template-hash", model.prompts->template_hash()},
                   {"verify", options.decode.verify},
                   {"max-tokens", sampling.max_tokens},
                   {"temperature", sampling.rule.temperature},
                   {"top-p", sampling.rule.top_p},
                   {"top-k", sampling.rule.top_k},
                   {"seed", sampling.seed},
                   {"stop", sampling.stop}};
  if (sampling.rule.min_p > 0) settings["min-p"] = sampling.rule.min_p;
  ControlFields controls = sampling.controls;
  controls.fill(model.prompts->own_controls());
  settings.update(controls.described());
  if (!model.target->device().is_cpu()) settings["device"] = "cuda";  // the last bits differ from the CPU's
  if (options.decode.verify == "typical") {                           // lossy: the tree has a say
    settings["heads"] = hash_of_heads(options.model.heads);
    settings["draft"] = options.decode.draft;
    settings["budget"] = options.decode.budget;
    settings["suffix"] = options.decode.suffix;
    settings["suffix-answers"] = options.decode.suffix_answers;
    settings["tree-top-p"] = options.decode.tree_top_p;
    settings["tree-cut"] = options.decode.tree_cut;
  }
  return settings;
}

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

void print_counts(const BatchJob::Outcome& outcome, int64_t before) {
  std::fprintf(stderr, "%lld answered, %lld failed", static_cast<long long>(outcome.answered),
               static_cast<long long>(outcome.failed));
  if (before) std::fprintf(stderr, ", %lld done before", static_cast<long long>(before));
  std::fprintf(stderr, "\n");
}

void print_held(const std::string& output, int64_t lines, int64_t failed) {
  std::fprintf(stderr, "%s holds %lld lines, %lld of them errors\n", output.c_str(),
               static_cast<long long>(lines), static_cast<long long>(failed));
}

void print_figures(const RunOutcome& run) {
  std::fprintf(stderr, "prompt tokens        %lld in %.1f s, %lld of them shared\n",
               static_cast<long long>(run.all.prompt_tokens), run.stats.prefill_seconds,
               static_cast<long long>(run.stats.shared_prompt_tokens));
  std::fprintf(stderr, "tokens               %lld in %.1f s\n", static_cast<long long>(run.all.tokens),
               run.seconds);
  std::fprintf(stderr, "decoding             %.1f tokens/s\n", run.tokens_per_second());
  std::fprintf(stderr,
               "tokens/step          %.3f  ((tokens - first of each answer) / decode passes of each "
               "sequence; 1 without drafting)\n",
               run.all.tokens_per_step());
  std::fprintf(stderr, "guesses kept a step  %s\n", show_histogram(run.all.accepted_histogram).c_str());
  const json share = time_share(run.stats);
  std::fprintf(
      stderr, "time                 target %.0f%%  drafter %.0f%%  grow %.0f%%  verify %.0f%%  host %.0f%%\n",
      100 * share["target"].get<double>(), 100 * share["drafter"].get<double>(),
      100 * share["grow"].get<double>(), 100 * share["verify"].get<double>(),
      100 * share["host"].get<double>());
  if (run.stats.graphs > 0) {
    std::fprintf(stderr, "graphs               %lld recorded in %.1f s, %lld MiB of the GPU\n",
                 static_cast<long long>(run.stats.graphs), run.stats.graph_seconds,
                 static_cast<long long>(run.stats.graph_bytes >> 20));
  }
}

std::string speed_note(const EngineStats& stats) {
  char note[64];
  std::snprintf(
      note, sizeof note, "%.0f tokens/s, %.2f tokens/step",
      static_cast<double>(stats.tokens) / std::max(1e-9, stats.prefill_seconds + stats.decode_seconds),
      stats.tokens_per_step());
  return note;
}

json report_entry(const BatchOptions& options, const EngineOptions& settings, const RunOutcome& run,
                  const BatchJob::Outcome& outcome) {
  json entry = describe_growth(settings, options.model.heads);
  entry.update(describe_outcome(run));
  entry["temperature"] = options.decode.sampling.rule.temperature;
  entry["answered"] = outcome.answered;
  entry["failed"] = outcome.failed;
  entry["interrupted"] = outcome.interrupted;
  entry["rounds"] = json::array({{{"seconds", run.seconds},
                                  {"tokens_per_second", run.tokens_per_second()},
                                  {"tokens_per_step", run.all.tokens_per_step()}}});
  entry["ratio_to_off"] = nullptr;  // plain decoding was not run; see bench
  entry["differs_from_off"] = nullptr;
  return entry;
}

/// A job ready to run: everything that can be refused has been looked at.
struct Job {
  const BatchOptions& options;
  const EngineOptions& settings;
  const FileSummary& input;
  const LoadedModel& model;
  Engine& engine;
  double bandwidth;  // bytes a second, when a report is asked for
  json run;          // of BatchOutput
};

struct Work {
  BatchJob::Outcome outcome;
  RunOutcome run;
};

// Enough that none waits for the file; a rank leaves what it cannot begin soon to the others.
int64_t waiting_lines(const Job& job, bool shared) {
  return shared ? job.settings.max_batch : 4 * job.settings.max_batch;
}

/// Answers the lines that `output` lacks and that are `mine`.  `on_step` hears how many lines were read.
Work answer(const Job& job, BatchOutput& output, std::function<bool(int64_t line)> mine,
            const std::function<void(int64_t lines_read)>& on_step) {
  EngineDecoder decoder(job.engine);
  BatchJob lines(
      {job.options.input, job.options.decode.sampling, job.model.target->config().context,
       waiting_lines(job, mine != nullptr), job.settings.typical, job.options.stats, std::move(mine)},
      *job.model.prompts, decoder, output);
  const auto begin = std::chrono::steady_clock::now();
  Work work;
  work.outcome = lines.run(interrupted, [&](const BatchJob::Outcome&) { on_step(lines.lines_read()); });
  work.run.stats = job.engine.stats();
  work.run.all = work.outcome.all;
  work.run.by_category = work.outcome.by_category;
  work.run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  work.run.peak_memory = peak_memory();
  job.engine.keep_costs();
  return work;
}

void report(const Job& job, const Work& work) {
  if (work.run.all.requests > 0) print_figures(work.run);
  if (job.options.report.empty()) return;
  const json entry = report_entry(job.options, job.settings, work.run, work.outcome);
  write_report(job.options.report, report_of(json::array({entry}), *job.model.target, job.bandwidth));
}

int say_incomplete(const char* why, const std::string& output) {
  std::fprintf(stderr, "%s: what is complete is safe in %s; the same command continues\n", why,
               output.c_str());
  return exit_interrupted;
}

int answer_alone(const Job& job) {
  const std::string& file = job.options.output;
  RankOutput::join_left_behind(file, job.run);
  BatchOutput output(file, job.run, job.options.retry_errors);
  const int64_t before = output.done_lines();
  Progress progress("batch", job.input.filled_lines);
  progress.update(before);
  const Work work = answer(job, output, nullptr, [&](int64_t) {
    progress.update(output.done_lines(), speed_note(job.engine.stats()));
  });
  progress.finish();
  print_counts(work.outcome, before);
  print_held(file, output.done_lines(), output.failed_lines());
  report(job, work);
  if (work.outcome.interrupted) return say_incomplete("interrupted", file);
  return output.failed_lines() > 0 ? exit_some_failed : exit_done;
}

/// Lines are claimed in order, so that how far one rank has read is about how far all of them are.
int answer_as_rank(const Job& job, Rank rank) {
  const std::string& file = job.options.output;
  RankOutput output(file, rank, job.run, job.options.retry_errors);
  std::optional<Progress> progress;
  if (rank.number == 0) progress.emplace("batch", job.input.lines);
  const Work work = answer(
      job, output.part(), [&output](int64_t line) { return output.claim(line); },
      [&](int64_t lines_read) {
        if (progress) progress->update(lines_read, speed_note(job.engine.stats()));
      });
  if (progress) progress->finish();
  const RankOutput::Joined joined = output.finish();
  std::fprintf(stderr, "rank %lld of %lld: ", static_cast<long long>(rank.number),
               static_cast<long long>(rank.count));
  print_counts(work.outcome, 0);
  if (joined.last) print_held(file, joined.done, joined.failed);
  report(job, work);
  if (work.outcome.interrupted) return say_incomplete("interrupted", joined.last ? file : file + ".ranks");
  if (!joined.last) return exit_done;
  if (joined.done < job.input.filled_lines)
    return say_incomplete("lines are missing that a rank had claimed and did not answer", file);
  return joined.failed > 0 ? exit_some_failed : exit_done;
}

void check_rank(const BatchOptions& options, Rank rank) {
  if (rank.count > 1 && !options.stats.empty()) {
    throw data::InputError(
        "--stats " + options.stats + ": expected one process, found " + std::to_string(rank.count) +
        " ranks, each of which would have to write it; leave --stats out (answers to lines that "
        "are no OpenAI requests tell their steps)");
  }
}

int batch(BatchOptions options, const json& settings) {
  EngineOptions engine_settings = engine_options(options.decode, !options.model.heads.empty());
  const Rank rank = Rank::of_launcher();
  check_rank(options, rank);
  if (rank.count > 1 && !options.report.empty()) options.report += ".rank-" + std::to_string(rank.number);
  check_files(options);
  const FileSummary input = summarise_file(options.input);
  refuse_json_array(options.input);
  watch_for_interrupts();
  const LoadedModel model = load_model(options.model);
  engine_settings.end_ids = chosen_end_ids(options.decode.end_tokens, options.model.target, model);
  stop_if_interrupted();
  // Its buffer goes before the cache comes: the peak of memory is the job's own.
  const double bandwidth = options.report.empty() ? 0 : bandwidth_of(*model.target);
  model::Drafter* drafter = engine_settings.growth.policy == Policy::off ? nullptr : model.drafter.get();
  engine_settings.costs = CostFile::of(*model.target, engine_settings.graphs, engine_settings.typical);
  Engine engine(*model.target, drafter, model.prompts->tokenizer(), engine_settings);
  const Job job{options,
                engine_settings,
                input,
                model,
                engine,
                bandwidth,
                {{"settings", settings},
                 {"affects_output", affects_output(options, engine_settings, model)},
                 {"input", {{"lines", input.lines}, {"hash", input.hash}}},
                 {"machine", describe_machine(model.target->device())},
                 {"build", describe_build()}}};
  return rank.count > 1 ? answer_as_rank(job, rank) : answer_alone(job);
}

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
  app.footer(
      "\nLines may mix:\n"
      "  {\"prompt\": \"Once upon a time\"}                           the text as it is\n"
      "  {\"id\": 7, \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}  through the chat template\n"
      "  {\"turns\": [\"Hi\", \"And in French?\"]}                      a conversation, answered turn by "
      "turn\n"
      "  OpenAI batch requests (custom_id, method, url, body)\n"
      "with their own temperature, top_p, top_k, min_p, seed, max_tokens, stop, repetition_penalty, "
      "presence_penalty,\n"
      "frequency_penalty, no_repeat_ngram_size, min_tokens, logit_bias, bad_words, bad_words_ids, "
      "suppress_tokens,\n"
      "begin_suppress_tokens.  Beside messages and turns, system is a message, and tools, documents and\n"
      "chat_template_kwargs go to the chat template; what it does not use is an error.  A line's answer "
      "depends on nothing\n"
      "but the line, these flags and the model's own generation_config.json.  A bad line becomes an error "
      "record, and the\n"
      "job goes on.\n"
      "A \"prompt\" may also be the ids of its tokens, or a list of prompts: each is answered, results are "
      "lists then\n"
      "(OpenAI's choices).  Its answer goes on with its text, from the first space on.\n\n"
      "Exit codes: 0 done, 2 bad input or settings, 3 done but some lines failed, 75 interrupted (the same "
      "command\n"
      "continues), 1 anything else.\n\n"
      "Started several times over by torchrun or Slurm, the processes share the lines as they go and leave "
      "one "
      "output;\nwhat was interrupted may go on with any number of them.  On several machines their common "
      "file system "
      "must\nsupport flock across machines.\n\nExamples:\n"
      "  clover-infer batch --target models/SmolLM2-135M-Instruct --heads heads-clover \\\n"
      "      --input questions.jsonl --output answers.jsonl --max-tokens 256\n"
      "  clover-infer batch --config batch.toml --input questions.jsonl --output answers.jsonl "
      "--retry-errors\n"
      "  srun -n 8 --gpus-per-task 1 clover-infer batch --device cuda --config batch.toml --input "
      "questions.jsonl "
      "\\\n      --output answers.jsonl\n");
  return [options, &app] { return batch(*options, resolved_settings(app)); };
}

}  // namespace clover::infer
