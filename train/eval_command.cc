#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "data/error.h"
#include "data/files.h"
#include "infer/exit_code.h"
#include "infer/interrupt.h"
#include "infer/machine.h"
#include "infer/progress.h"
#include "model/heads_checkpoint.h"
#include "train/acceptance.h"
#include "train/commands.h"
#include "train/eval_input.h"
#include "train/feature_source.h"
#include "train/head_accuracy.h"

namespace clover::train {
namespace {

struct EvalOptions {
  infer::ModelOptions model;
  std::string input, json;
  int64_t limit = 200, max_length = 2048, micro_batch = 8;
  AcceptanceSettings decoder;
};

/// Hits of each head by rank, teacher-forced and fed with its own guesses.
struct Accuracy {
  std::vector<HeadFigures> truth, own;  // [K]

  explicit Accuracy(int64_t heads) : truth(heads), own(heads) {}
  void add(const ScoredLabel& label, Feed feed) {
    HeadFigures& figures = (feed == Feed::truth ? truth : own)[label.head];
    ++figures.labels;
    if (label.rank < top_ranks) ++figures.hits[label.rank];
  }
  nlohmann::json to_json() const {
    nlohmann::json heads = nlohmann::json::array();
    for (size_t i = 0; i < truth.size(); ++i) {
      heads.push_back({{"head", i},
                       {"labels", truth[i].labels},
                       {"teacher_forced", tops(truth[i])},
                       {"own_guesses", tops(own[i])}});
    }
    return heads;
  }
  static std::vector<double> tops(const HeadFigures& figures) {
    std::vector<double> shares;
    for (int64_t k = 1; k <= top_ranks; ++k) shares.push_back(figures.top(k));
    return shares;
  }
};

/// Buckets of a label's distance from the first token of the answer: [0, 16), [16, 32), [32, 64), ...
int64_t bucket_of(int64_t distance) {
  int64_t bucket = 0;
  for (int64_t end = 16; distance >= end; end *= 2) ++bucket;
  return bucket;
}
int64_t bucket_begin(int64_t bucket) {
  return bucket == 0 ? 0 : int64_t{16} << (bucket - 1);
}

class Evaluation {
 public:
  Evaluation(const EvalOptions& options, const model::Target& target, const infer::PromptEncoder& prompts,
             std::vector<EvalSample> samples)
      : options_(options),
        target_(target),
        prompts_(prompts),
        samples_(std::move(samples)),
        drafter_(model::load_heads(options.model.heads, target, /*trainable=*/true)),
        all_(drafter_->max_depth()) {}

  nlohmann::json run() {
    const AcceptanceFigures decoder = decode();
    score();
    nlohmann::json categories = nlohmann::json::object(), positions = nlohmann::json::array();
    for (const auto& [category, accuracy] : by_category_) {
      categories[category] = {{"heads", accuracy.to_json()}};
      if (decoder.by_category.contains(category))
        categories[category]["tokens_per_step"] = decoder.by_category[category];
    }
    for (const auto& [bucket, accuracy] : by_position_) {
      positions.push_back(
          {{"from", bucket_begin(bucket)}, {"to", bucket_begin(bucket + 1)}, {"heads", accuracy.to_json()}});
    }
    return {{"machine", infer::describe_machine()},
            {"build", infer::describe_build()},
            {"samples", samples_.size()},
            {"tokens_per_step", decoder.tokens_per_step},
            {"decoder",
             {{"policy", "clover"},
              {"budget", options_.decoder.budget},
              {"max_tokens", options_.decoder.max_tokens},
              {"tokens", decoder.tokens},
              {"passes", decoder.passes},
              {"differs_from_plain", decoder.differs},
              {"accepted_histogram", decoder.accepted_histogram}}},
            {"heads", all_.to_json()},
            {"by_category", categories},
            {"by_position", positions}};
  }

 private:
  /// Tokens per step of the real decoder; bare prompts get the target's answer.
  AcceptanceFigures decode() {
    std::vector<EvalPrompt> prompts;
    std::vector<EvalSample*> asked;
    for (auto& sample : samples_) {
      const int64_t length = std::max<int64_t>(1, sample.prompt_length());
      if (length + options_.decoder.max_tokens > target_.config().context) continue;
      prompts.push_back({{sample.ids.begin(), sample.ids.begin() + length}, sample.category});
      asked.push_back(&sample);
    }
    if (prompts.empty()) {
      throw data::InputError("No prompt of " + options_.input + " leaves room for --max-tokens " +
                             std::to_string(options_.decoder.max_tokens) + " in the target's context.");
    }
    Acceptance acceptance(target_, prompts_.tokenizer(), std::move(prompts), options_.decoder);
    const AcceptanceFigures figures = acceptance.measure(*drafter_);
    for (size_t i = 0; i < asked.size(); ++i) {
      if (asked[i]->answered()) continue;
      for (const int64_t id : acceptance.plain_answers()[i]) {
        asked[i]->ids.push_back(id);
        asked[i]->supervised.push_back(1);
      }
    }
    return figures;
  }

  void score() {
    size_t longest = 0;
    for (const auto& sample : samples_) longest = std::max(longest, sample.ids.size());
    FeatureSource source(target_, drafter_->features(), static_cast<int64_t>(longest), 0);
    const LabelMap label_map(drafter_->head(0).token_map, target_.config().vocab);
    const at::Tensor weight = loss_weight(*drafter_, at::kFloat);
    infer::Progress progress("scoring", static_cast<int64_t>(samples_.size()), 0);
    for (size_t begin = 0; begin < samples_.size(); begin += options_.micro_batch) {
      infer::stop_if_interrupted();
      const size_t count = std::min(static_cast<size_t>(options_.micro_batch), samples_.size() - begin);
      score_batch(begin, count, source, label_map, weight);
      progress.update(static_cast<int64_t>(begin + count), "");
    }
  }

  void score_batch(size_t begin, size_t count, FeatureSource& source, const LabelMap& label_map,
                   const at::Tensor& weight) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<data::TokenStore::Sample> samples;
    std::vector<int64_t> rows;
    const std::vector<int64_t> keys(count, -1);
    for (size_t i = begin; i < begin + count; ++i)
      ids.emplace_back(samples_[i].ids.begin(), samples_[i].ids.end());
    for (size_t i = 0; i < count; ++i) {
      samples.push_back({ids[i], samples_[begin + i].supervised, samples_[begin + i].category});
      rows.push_back(useful_rows(samples[i], drafter_->max_depth()));
    }
    const PackedBatch batch = pack(samples, drafter_->max_depth());
    if (batch.rows == 0) return;
    const model::Features features = source.of(samples, rows, keys);
    for (const Feed feed : {Feed::truth, Feed::own_guesses}) {
      for (const ScoredLabel& label : score_labels(*drafter_, features, batch, label_map, weight, feed)) {
        const EvalSample& sample = samples_[begin + label.sample];
        all_.add(label, feed);
        if (!sample.category.empty()) {
          by_category_.try_emplace(sample.category, drafter_->max_depth()).first->second.add(label, feed);
        }
        const int64_t bucket = bucket_of(label.position - sample.prompt_length());
        by_position_.try_emplace(bucket, drafter_->max_depth()).first->second.add(label, feed);
      }
    }
  }

  const EvalOptions& options_;
  const model::Target& target_;
  const infer::PromptEncoder& prompts_;
  std::vector<EvalSample> samples_;
  std::shared_ptr<model::Drafter> drafter_;
  Accuracy all_;
  std::map<std::string, Accuracy> by_category_;
  std::map<int64_t, Accuracy> by_position_;
};

void show(const nlohmann::json& report) {
  std::fprintf(stderr, "%.3f tokens/step; %lld answers differ from plain decoding\n",
               report["tokens_per_step"].get<double>(),
               static_cast<long long>(report["decoder"]["differs_from_plain"].get<int64_t>()));
  std::fprintf(stderr, "head   labels   top-1   top-5  top-10   top-1 on its own guesses\n");
  for (const auto& head : report["heads"]) {
    const auto& forced = head["teacher_forced"];
    std::fprintf(stderr, "%4lld %8lld  %5.1f%%  %5.1f%%  %5.1f%%   %5.1f%%\n",
                 static_cast<long long>(head["head"].get<int64_t>()),
                 static_cast<long long>(head["labels"].get<int64_t>()), 100 * forced[0].get<double>(),
                 100 * forced[4].get<double>(), 100 * forced[9].get<double>(),
                 100 * head["own_guesses"][0].get<double>());
  }
}

int eval(const EvalOptions& options) {
  if (options.model.heads.empty()) throw data::InputError("No heads: give --heads DIR.");
  infer::watch_for_interrupts();
  infer::prepare_device(options.model);
  model::read_heads_info(options.model.heads);
  const infer::PromptEncoder prompts(options.model.target, options.model.chat_template);
  const auto target = model::Target::load(options.model.target, infer::chosen_dtype(options.model));
  EvalInput input = read_eval_input(options.input, prompts, options.model.target, options.model.chat_template,
                                    options.max_length, options.limit, target->config().vocab);
  const int64_t bad = input.bad_records;
  nlohmann::json report = Evaluation(options, *target, prompts, std::move(input.samples)).run();
  report["bad_records"] = bad;
  report["heads_folder"] = options.model.heads;
  show(report);
  if (!options.json.empty()) data::write_file_atomically(options.json, report.dump(1) + "\n");
  return bad > 0 ? infer::exit_some_failed : infer::exit_done;
}

}  // namespace

Action declare_eval(CLI::App& app) {
  const auto options = std::make_shared<EvalOptions>();
  infer::add_model_options(app, options->model, infer::HeadsOption::one);
  app.add_option("--input", options->input, "Token store, or JSONL of training records or requests")
      ->required()
      ->type_name("FILE|STORE");
  app.add_option("--json", options->json, "Write the figures to this file")->type_name("FILE");
  app.add_option("--max-tokens", options->decoder.max_tokens, "Tokens decoded for each prompt")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--budget", options->decoder.budget, "Guesses a step of the decoder (policy clover)")
      ->check(CLI::Range(0, 4096));
  app.add_option("--max-batch", options->decoder.max_batch, "Sequences decoded together")
      ->check(CLI::Range(1, 4096));
  app.add_option("--limit", options->limit, "Samples used at most")->check(CLI::Range(1, 1 << 30));
  app.add_option("--max-length", options->max_length, "Longer samples are cut to this many tokens")
      ->check(CLI::Range(3, 1 << 30));
  app.footer(
      "Example:\n  clover-train eval --target models/SmolLM2-135M-Instruct --heads run/best --input store "
      "--json eval.json");
  return [options] { return eval(*options); };
}

}  // namespace clover::train
