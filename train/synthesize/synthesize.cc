#include "train/synthesize/synthesize.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/files/files.h"
#include "infer/batch/batch_output.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "train/synthesize/conversations.h"
#include "train/synthesize/openings.h"
#include "train/synthesize/parts_folder.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void check(const SynthesizeOptions& options) {
  const auto fail = [](const std::string& option, const std::string& expected, const auto& found) {
    throw data::InputError(option + ": expected " + expected + ", found " + std::to_string(found));
  };
  if (options.count < 1) fail("--count", "1 or more", options.count);
  if (options.turns < 1 || options.turns > 32) fail("--turns", "1 to 32", options.turns);
  if (!(options.holdout >= 0 && options.holdout < 1))
    fail("--holdout", "a share from 0 up to 1", options.holdout);
  if (options.user_max_tokens < 1) fail("--user-max-tokens", "1 or more", options.user_max_tokens);
  if (!(options.user_top_p > 0 && options.user_top_p <= 1))
    fail("--user-top-p", "more than 0, at most 1", options.user_top_p);
  if (!(options.user_temperature > 0)) fail("--user-temperature", "more than 0", options.user_temperature);
  if (!options.topics.empty() && !options.first_questions.empty())
    throw data::InputError("--topics and --first-questions: expected one of them, found both");
}

/// FILE with .held-out before its suffix.
fs::path held_out_file(const fs::path& output) {
  return output.parent_path() / (output.stem().string() + ".held-out" + output.extension().string());
}

json report_of(const Conversations& conversations, const json& resolved_options) {
  const SynthesisCounts& counts = conversations.counts();
  return {{"settings", resolved_options},
          {"begun", counts.begun},
          {"kept", counts.kept},
          {"held_out", counts.held_out},
          {"dropped", to_json(counts.dropped)},
          {"shortened", to_json(counts.shortened)},
          {"surplus", counts.surplus},
          {"answer_tokens", conversations.answer_tokens()},
          {"took", infer::to_json(conversations.cost())}};
}

void print_counts(const Conversations& conversations, const SynthesizeOptions& options) {
  const SynthesisCounts& counts = conversations.counts();
  const std::string dropped = summary_of(counts.dropped);
  std::string text = std::to_string(counts.kept - counts.held_out) + " conversations in " + options.output;
  if (options.holdout > 0)
    text += ", " + std::to_string(counts.held_out) + " held out in " + held_out_file(options.output).string();
  text += "; of " + std::to_string(counts.begun) + " begun were dropped: " + dropped + "; " +
          std::to_string(counts.surplus) + " good ones were more than asked for\n" +
          std::to_string(conversations.answer_tokens()) +
          " tokens of answers; shorter than asked, for a later turn: " + summary_of(counts.shortened) + "\n";
  if (!conversations.first_error().empty())
    text += "The first request that failed says: " + conversations.first_error() + "\n";
  if (counts.kept < options.count) {
    text += std::to_string(options.count) + " were asked for: " +
            (options.first_questions.empty() ? "too few of those begun are good"
                                             : "the first questions are used up") +
            " (dropped: " + dropped + ")\n";
  }
  std::fputs(text.c_str(), stderr);
}

/// The settings that decide what is generated.  Files count by their contents.
json deciding_settings(json settings, const Openings& openings) {
  for (const char* other : {"heads", "draft", "max-batch", "kv-memory", "prefill-chunk", "threads", "output",
                            "topics", "first-questions"})
    settings.erase(other);
  settings.update(openings.hashes);
  return settings;
}

/// InputError when an output is there already.  The part held out may be there of a run that was killed
/// before it had written the rest.
void check_not_there(const SynthesizeOptions& options, const fs::path& parts) {
  std::vector<fs::path> files{fs::path(options.output)};
  if (options.holdout > 0 && !PartsFolder::is_there(parts)) files.push_back(held_out_file(options.output));
  for (const fs::path& file : files) {
    if (!fs::exists(file)) continue;
    throw data::InputError("--output " + options.output + ": expected that " + file.string() +
                           " is not there yet, found it; remove it or choose another name");
  }
}

void write_outputs(const Conversations& conversations, const SynthesizeOptions& options,
                   const json& resolved_options) {
  if (options.holdout > 0)
    data::write_file_atomically(held_out_file(options.output), conversations.held_out_lines());
  const json report = report_of(conversations, resolved_options);
  data::write_file_atomically(infer::run_file_of(options.output),
                              report.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  data::write_file_atomically(options.output, conversations.kept_lines());  // last: it says that all is done
}

}  // namespace

int synthesize(const SynthesizeOptions& options, const json& resolved_options) {
  check(options);
  const fs::path parts = options.output + ".parts";
  check_not_there(options, parts);
  const Openings openings = read_openings(options.topics, options.first_questions);
  data::check_writable(options.output);
  infer::watch_for_interrupts();
  const PartsFolder folder(parts, deciding_settings(resolved_options, openings));
  const infer::LoadedModel model = infer::load_model(options.model);
  Conversations conversations(options, openings, model, parts);
  folder.write_settings();
  try {
    conversations.run();
  } catch (const infer::Interrupted&) {
    std::fprintf(stderr, "interrupted: what is complete is safe in %s; the same command continues\n",
                 parts.c_str());
    return infer::exit_interrupted;
  }
  write_outputs(conversations, options, resolved_options);
  folder.remove();
  print_counts(conversations, options);
  return conversations.counts().kept < options.count ? infer::exit_some_failed : infer::exit_done;
}

}  // namespace clover::train
