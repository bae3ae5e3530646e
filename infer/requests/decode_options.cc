#include "infer/requests/decode_options.h"

#include "data/files/error.h"
#include "infer/program/command_line.h"

namespace clover::infer {
void add_sampling_options(CLI::App& app, SamplingFields& sampling) {
  const std::string group = "Answers";
  app.add_option("--max-tokens", sampling.max_tokens, "Longest answer, in tokens")
      ->type_name("N")
      ->check(whole_number<int64_t>())
      ->group(group);
  app.add_option("--temperature", sampling.rule.temperature, "0: always the most probable token")
      ->type_name("X")
      ->group(group);
  app.add_option("--top-p", sampling.rule.top_p, "Sample from the most probable tokens that hold this mass")
      ->type_name("X")
      ->group(group);
  app.add_option("--top-k", sampling.rule.top_k, "Sample from the K most probable tokens; 0 or -1: all")
      ->type_name("K")
      ->transform([](std::string given) { return given == "-1" ? std::string("0") : given; })
      ->check(whole_number<int64_t>())
      ->group(group);
  app.add_option("--min-p", sampling.rule.min_p,
                 "Sample from the tokens of at least this share of the most probable one's probability")
      ->type_name("X")
      ->group(group);
  app.add_option("--seed", sampling.seed, "Seed of sampling; the same request gives the same answer")
      ->type_name("N")
      ->check(whole_number<uint64_t>())
      ->group(group);
  app.add_option("--stop", sampling.stop, "Texts that end an answer (and are not part of it)")
      ->type_name("TEXT")
      ->group(group);
  add_control_options(app, sampling.controls);
}

void add_end_option(CLI::App& app, DecodeOptions& options) {
  app.add_option("--end-tokens", options.end_tokens,
                 "Tokens that end an answer, by text or id; model: those its config names; tokenizer: its "
                 "eos_token; none (default: model tokenizer)")
      ->type_name("TOKEN")
      ->group("Answers");
}

void add_draft_options(CLI::App& app, DecodeOptions& options) {
  const std::string group = "Drafting";
  app.add_option(
         "--draft", options.draft,
         "Growth policy: auto (measures and chooses), off, chain, static, clover; never changes tokens")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--budget", options.budget,
                 "Guesses of the heads to check per sequence and step, at most 63, or 47 beside guesses from "
                 "the text "
                 "(default: clover 4, chain its depth, static and auto as many as there may be; 0: off)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{-1}, int64_t{4096}))
      ->group(group);
  add_tree_options(app, options, group);
  app.add_option(
         "--verify", options.verify,
         "match: exactly the target's answers; typical: faster, lossy, and marked so in the output: it keeps "
         "every guess that is likely enough and draws only what comes behind, so that seeds make less "
         "of a difference")
      ->type_name("NAME")
      ->check(CLI::IsMember({"match", "typical"}))
      ->group(group);
  add_suffix_option(app, options);
}

void add_tree_options(CLI::App& app, DecodeOptions& options, const std::string& group) {
  app.add_option("--tree-top-p", options.tree_top_p, "clover: guesses of a node kept within this mass")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  app.add_option("--tree-cut", options.tree_cut,
                 "clover: guesses below this share of their node's best are dropped")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
}

void add_suffix_option(CLI::App& app, DecodeOptions& options) {
  app.add_option("--suffix", options.suffix,
                 "Guesses copied from the text so far: auto (under --draft auto, where they pay), on, off")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->group("Drafting");
  app.add_flag("--suffix-answers", options.suffix_answers,
               "Copy from finished answers of the job too: for jobs whose answers resemble each other")
      ->group("Drafting");
}

void add_scheduling_options(CLI::App& app, DecodeOptions& options) {
  const std::string group = "Scheduling";
  app.add_option("--max-batch", options.max_batch, "Sequences decoded at once")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->group(group);
  app.add_option("--kv-memory", options.kv_memory,
                 "Memory for keys and values, in bytes or as 512MB, 4GB; 0: a quarter of what is free, of a "
                 "GPU four fifths")
      ->type_name("BYTES")
      ->transform(byte_count())
      ->group(group);
  add_prefill_option(app, options, group);
}

void add_prefill_option(CLI::App& app, DecodeOptions& options, const std::string& group) {
  app.add_option("--prefill-chunk", options.prefill_chunk,
                 "Prompt tokens read in one pass, of all requests that join; whoever decodes waits no longer "
                 "than for such a pass; 0: 256, on a GPU 2048 or what its memory allows")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->group(group);
}

void add_graphs_option(CLI::App& app, DecodeOptions& options) {
  app.add_flag(
         "--no-graphs", options.no_graphs,
         "On a GPU, start the kernels of every pass and draft one by one instead of as recorded graphs: "
         "slower, the same tokens")
      ->group("Model");
}

bool suffix_wanted(const std::string& suffix, Policy policy) {
  if (policy == Policy::off) return false;  // `off` never drafts
  return suffix == "on" || (suffix == "auto" && policy == Policy::automatic);
}

EngineOptions engine_options(const DecodeOptions& options, bool with_heads) {
  check_sampling(options.sampling);
  EngineOptions engine;
  engine.growth = {parse_policy(options.draft), options.tree_top_p, options.tree_cut};
  if (!with_heads && engine.growth.policy != Policy::automatic && engine.growth.policy != Policy::off) {
    throw data::InputError("--draft " + options.draft + ": expected --heads DIR to draft with, found none");
  }
  if (options.budget == 0) engine.growth.policy = Policy::off;
  engine.budget = options.budget;
  engine.typical = options.verify == "typical";
  engine.suffix = suffix_wanted(options.suffix, engine.growth.policy);
  engine.suffix_answers = options.suffix_answers;
  if (engine.suffix_answers && !engine.suffix)
    throw data::InputError(
        "--suffix-answers: expected guesses from the text to be on, found them off; give --suffix on, or "
        "--draft auto");
  engine.max_batch = options.max_batch;
  engine.kv_memory = static_cast<int64_t>(options.kv_memory);
  engine.prefill_chunk = options.prefill_chunk;
  engine.graphs = !options.no_graphs;
  engine.end_ids = options.end_ids;
  return engine;
}

nlohmann::json resolved_budget(const GrowthRule& rule, int64_t budget) {
  if (rule.policy == Policy::off) return 0;
  if (budget >= 0) return budget;
  if (rule.policy == Policy::clover) return 4;
  return nullptr;
}

}  // namespace clover::infer
