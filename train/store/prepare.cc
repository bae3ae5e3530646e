#include "train/store/prepare.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/chat/chat_template.h"
#include "data/files/error.h"
#include "data/files/files.h"
#include "data/tokenizer/tokenizer.h"
#include "data/training/token_store.h"
#include "data/training/training_input.h"
#include "infer/batch/batch_output.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/program/progress.h"
#include "infer/program/run_after_input_checks.h"
#include "model/target/target.h"
#include "train/store/preview.h"
#include "train/store/store_tokenization.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;

void check(const PrepareOptions& options) {
  if (!(options.holdout >= 0 && options.holdout < 1)) {
    throw data::InputError("--holdout is " + std::to_string(options.holdout) +
                           ", expected a share from 0 up to 1.");
  }
  if (options.max_length < 3) {
    throw data::InputError("--max-length is " + std::to_string(options.max_length) +
                           ", expected at least 3: the first guess is two tokens ahead.");
  }
  if (options.preview < 0)
    throw data::InputError("--preview is " + std::to_string(options.preview) + ", expected 0 or more.");
  if (options.max_bad_records < -1) {
    throw data::InputError("--max-bad-records is " + std::to_string(options.max_bad_records) +
                           ", expected 0 or more, or -1 for the default.");
  }
  if (options.output.empty() && options.preview == 0) {
    throw data::InputError("Nothing to do: give --output DIR, or --preview N to look at samples only.");
  }
  for (const auto& file : options.input) {
    if (!fs::is_regular_file(file)) throw data::InputError(file + " is no file that can be read.");
  }
}

/// The seconds and tokens that `batch` or `synthesize` recorded for the file (FILE.run.json); nothing for
/// other files.
std::optional<infer::AnsweringCost> cost_of_answers(const std::string& file) {
  const fs::path run_file = infer::run_file_of(file);
  if (!fs::is_regular_file(run_file)) return std::nullopt;
  try {
    return infer::recorded_cost(data::read_json(run_file));
  } catch (const data::InputError&) {
    return std::nullopt;  // a file of that name by somebody else
  }
}

struct Counts {
  int64_t samples = 0, bad = 0, tokens = 0, supervised = 0;
  // Samples after the first of their record (TrainingSample::part > 0).  A record is split at a turn before
  // which its tokens would change.
  int64_t samples_from_later_turns = 0;
};

/// Reads the input files, prints the preview and writes the store.
class Preparation {
 public:
  Preparation(const PrepareOptions& options, const data::Tokenizer& tokenizer,
              const data::ChatTemplate& chat_template, int64_t vocab)
      : options_(options),
        tokenizer_(tokenizer),
        reader_(tokenizer, chat_template, options.max_length, vocab),
        mark_style_(::isatty(STDOUT_FILENO) ? MarkStyle::terminal : MarkStyle::brackets) {
    if (!options.output.empty())
      writer_ = std::make_unique<data::TokenStoreWriter>(options.output, options.holdout, vocab);
  }

  void read(const std::string& file, infer::Progress& progress) {
    const int64_t before = counts_.samples, bad_before = counts_.bad;
    reader_.read(
        file,
        [&](data::TrainingSample&& sample) {
          infer::stop_if_interrupted();
          add(sample);
          progress.update(counts_.samples + counts_.bad, "");
        },
        [&](const data::BadRecord& record) { report(record); });
    sources_.push_back({{"file", fs::path(file).filename().string()},
                        {"bytes", fs::file_size(file)},
                        {"samples", counts_.samples - before},
                        {"bad_records", counts_.bad - bad_before}});
    if (const auto cost = cost_of_answers(file)) sources_.back()["took"] = infer::to_json(*cost);
  }

  /// Writes the store, unless only a preview is wanted.  `metadata`: for store.json.
  void write(const nlohmann::json& metadata) {
    if (!writer_) return;
    nlohmann::json store_metadata = metadata;
    store_metadata["sources"] = sources_;
    store_metadata["took"] = {{"seconds", seconds_since_start()}};
    infer::run_after_input_checks([&] { print_split(writer_->finish(store_metadata)); });
  }

  void print_notice() const {
    if (const std::string notice = reader_.notice(); !notice.empty()) std::cerr << notice << "\n";
  }

  const Counts& counts() const { return counts_; }

  /// InputError when more records are bad than max_bad_records allows.
  void check_bad_records() const {
    const int64_t limit = options_.max_bad_records >= 0
                              ? options_.max_bad_records
                              : std::max<int64_t>(100, (counts_.samples + counts_.bad) / 100);
    if (counts_.bad > limit) {
      throw data::InputError(std::to_string(counts_.bad) + " of " +
                             std::to_string(counts_.samples + counts_.bad) +
                             " records are bad, more than the " + std::to_string(limit) +
                             " allowed; nothing was written: mend them, or raise --max-bad-records.");
    }
  }

 private:
  double seconds_since_start() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  /// Previews and counts a sample and adds it to the store.
  void add(const data::TrainingSample& sample) {
    if (counts_.samples < options_.preview) {
      std::cout << "--- sample " << counts_.samples + 1 << ": " << sample.ids.size() << " tokens, "
                << std::count(sample.supervised.begin(), sample.supervised.end(), uint8_t{1})
                << " supervised\n"
                << preview(sample, tokenizer_, mark_style_) << "\n";
    }
    ++counts_.samples;
    counts_.samples_from_later_turns += sample.part > 0;
    counts_.tokens += static_cast<int64_t>(sample.ids.size());
    counts_.supervised += std::count(sample.supervised.begin(), sample.supervised.end(), uint8_t{1});
    if (writer_) writer_->add(sample);
  }

  /// Prints how many samples and prompts are held out; prompts are never in both splits.
  void print_split(const nlohmann::json& store) const {
    const auto count = [&](const char* split, const char* unit) { return store[split][unit].get<int64_t>(); };
    if (options_.holdout == 0) return;
    if (count("held_out", "samples") == 0) {
      std::cerr << "nothing is held out: all samples are of one prompt or conversation\n";
      return;
    }
    std::cerr << count("held_out", "samples") << " samples of " << count("held_out", "prompts")
              << " prompts are held out, " << count("train", "samples") << " of " << count("train", "prompts")
              << " are trained on\n";
  }

  void report(const data::BadRecord& record) {
    constexpr int64_t max_printed = 100;
    if (++counts_.bad <= max_printed) {
      std::cerr << record.file << ":" << record.line << ": " << printable(record.reason) << "\n";
    } else if (counts_.bad == max_printed + 1) {
      std::cerr << "further bad records are only counted\n";
    }
  }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const PrepareOptions& options_;
  const data::Tokenizer& tokenizer_;
  data::TrainingReader reader_;
  MarkStyle mark_style_;
  std::unique_ptr<data::TokenStoreWriter> writer_;
  nlohmann::json sources_ = nlohmann::json::array();
  Counts counts_;
};

}  // namespace

int prepare(const PrepareOptions& options) {
  check(options);
  infer::require_cpu(options.model);  // also sets the number of threads
  const std::string& folder = options.model.target;
  const auto tokenizer = data::Tokenizer::load(folder);
  const auto chat_template = data::ChatTemplate::load(folder, options.model.chat_template);
  const model::TargetConfig config = model::TargetConfig::read(folder);
  infer::watch_for_interrupts();
  Preparation preparation(options, *tokenizer, chat_template, config.vocab);
  std::string fingerprint;  // needs the target's weights, so it is computed only when a store is written
  if (!options.output.empty())
    fingerprint = model::Target::load(folder, infer::chosen_dtype(options.model))->fingerprint();
  preparation.print_notice();
  {
    infer::Progress progress("records", /*total=*/0);  // not known
    for (const auto& file : options.input) preparation.read(file, progress);
  }
  preparation.check_bad_records();
  const Counts& counts = preparation.counts();
  if (counts.supervised == 0) {
    throw data::InputError(
        counts.samples + counts.bad == 0
            ? "The input holds no records: expected one JSON object a line, as `prepare --help` lists them."
            : "None of the records has a token to learn from; nothing was written: look at them with "
              "--preview 5.");
  }
  nlohmann::json metadata =
      describe_tokenization(folder, *tokenizer, chat_template, options.model.chat_template);
  metadata["target"] = {{"fingerprint", fingerprint}};
  metadata["max_length"] = options.max_length;
  metadata["holdout"] = options.holdout;
  preparation.write(metadata);
  std::cerr << counts.samples << " samples, " << counts.tokens << " tokens, " << counts.supervised
            << " supervised (" << 100 * counts.supervised / counts.tokens << "%), " << counts.bad
            << " bad records skipped\n";
  if (counts.samples_from_later_turns > 0) {
    std::cerr
        << counts.samples_from_later_turns
        << " of these samples begin at a later turn of their record: the chat template, or tokenising again, "
           "changes the tokens of the turns before it, so one sample cannot hold both\n";
  }
  return counts.bad > 0 ? infer::exit_some_failed : infer::exit_done;
}

}  // namespace clover::train
