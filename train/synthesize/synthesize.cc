#include "train/synthesize/synthesize.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/folder_lock.h"
#include "data/files/hash.h"
#include "infer/batch/batch_output.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/line_reader.h"
#include "train/synthesize/answer_files.h"
#include "train/synthesize/near_duplicates.h"
#include "train/synthesize/user_frame.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A conversation that is being made.
struct Conversation {
  int64_t number;                       // from 0, over all rounds
  std::string topic;                    // empty: none
  std::vector<data::Message> messages;  // so far: user, assistant, user, ..
  TurnFault fault = TurnFault::none;    // of the turn that ended it
  int64_t answer_tokens = 0;            // of its answers
  bool open() const { return fault == TurnFault::none; }
};

std::string trimmed(const std::string& text) {
  const char* const blanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::vector<std::string> read_topics(const std::string& file) {
  std::vector<std::string> topics;
  if (file.empty()) return topics;
  infer::LineReader reader(file);
  for (std::string line; reader.next(line);)
    if (!infer::is_blank(line)) topics.push_back(trimmed(line));
  if (topics.empty())
    throw data::InputError("--topics " + file + ": expected a topic on each line, found none");
  return topics;
}

/// The first user message of every request in the file.
std::vector<std::string> read_first_questions(const std::string& file) {
  std::vector<std::string> questions;
  if (file.empty()) return questions;
  for (const infer::BatchLine& line : infer::read_batch_file(file, {})) {
    const auto user = std::find_if(line.messages.begin(), line.messages.end(),
                                   [](const data::Message& message) { return message.role == "user"; });
    if (user != line.messages.end()) {
      questions.push_back(user->content);
    } else if (!line.turns.empty()) {
      questions.push_back(line.turns.front());
    } else if (!line.prompt.empty()) {
      questions.push_back(line.prompt);
    } else {
      throw data::InputError("--first-questions " + file + ":" + std::to_string(line.number) +
                             ": expected messages, turns or a prompt of the user, found none");
    }
  }
  return questions;
}

/// The messages before the user's next turn, as the model is to read them while it speaks as the user.
std::vector<data::Message> seen_by_user(const Conversation& conversation) {
  std::vector<data::Message> messages;
  if (!conversation.topic.empty()) {
    messages.push_back({"system", "The user asks about this topic: " + conversation.topic});
  }
  messages.insert(messages.end(), conversation.messages.begin(), conversation.messages.end());
  return messages;
}

json json_of(const std::vector<data::Message>& messages) {
  json list = json::array();
  for (const data::Message& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return list;
}

/// The turn in a record of a batch output.  `tokens` gets its token ids, to which the result refers.
GeneratedTurn turn_of(const json& record, const data::Tokenizer& tokenizer, std::vector<int64_t>& tokens) {
  tokens = record.value("token_ids", std::vector<int64_t>());
  while (!tokens.empty() && tokenizer.is_special(tokens.back())) tokens.pop_back();
  return {trimmed(record.value("text", "")), tokens, record.value("finish_reason", "") == "length"};
}

class Synthesis {
 public:
  Synthesis(const SynthesizeOptions& options, const infer::LoadedModel& model, fs::path parts)
      : options_(options),
        tokenizer_(model.prompt_encoder->tokenizer()),
        chat_template_(data::ChatTemplate::load(options.model.target, options.model.chat_template)),
        parts_(std::move(parts)),
        topics_(read_topics(options.topics)),
        first_questions_(read_first_questions(options.first_questions)),
        files_(model, options.decode, options.model) {
    user_sampling_.seed = options.decode.sampling.seed;
  }

  /// Begins conversations in rounds until enough are kept.
  void run() {
    constexpr int64_t max_begun_per_kept = 20, min_round = 16, max_round = 4096;
    for (int64_t round = 1; counts_.kept < options_.count; ++round) {
      const int64_t missing = options_.count - counts_.kept;
      const double rate =
          counts_.begun == 0 ? 0.8 : std::max(0.05, double(counts_.kept) / double(counts_.begun));
      int64_t size = std::max(min_round, static_cast<int64_t>(std::ceil(double(missing) / rate)));
      size = std::min(size, max_round);
      if (!first_questions_.empty())
        size = std::min(size, static_cast<int64_t>(first_questions_.size()) - counts_.begun);
      if (size <= 0) break;
      if (counts_.begun > max_begun_per_kept * (counts_.kept + min_round)) {
        throw data::InputError(
            "Of " + std::to_string(counts_.begun) + " conversations only " + std::to_string(counts_.kept) +
            " were good: " +
            (first_error_.empty()
                 ? "the model does not speak as a user behind its template; give --topics or "
                   "--first-questions, or another --user-temperature."
                 : "the first request that failed says: " + first_error_));
      }
      run_round(round, size);
    }
  }

  /// Lines of the conversations that are kept, and of those held out.
  const std::string& kept_lines() const { return kept_lines_; }
  const std::string& held_out_lines() const { return held_out_lines_; }
  const SynthesisCounts& counts() const { return counts_; }
  int64_t answer_tokens() const { return answer_tokens_; }
  infer::AnsweringCost cost() const { return {files_.cost().seconds, answer_tokens_, files_.cost().joules}; }

 private:
  void run_round(int64_t round, int64_t size) {
    std::vector<Conversation> conversations;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t number = counts_.begun++;
      conversations.push_back({number, topics_.empty() ? "" : topics_[number % topics_.size()], {}});
    }
    for (int64_t turn = 1; turn <= options_.turns; ++turn) {
      const fs::path name = parts_ / ("round-" + std::to_string(round) + "-turn-" + std::to_string(turn));
      const std::string label =
          "round " + std::to_string(round) + (options_.turns > 1 ? ", turn " + std::to_string(turn) : "");
      if (turn == 1 && !first_questions_.empty()) {
        add_first_questions(conversations);
      } else {
        add_turns(conversations, "user", name.string() + ".user", user_sampling_, label + ", questions",
                  [this](const Conversation& conversation) { return user_request(conversation); });
      }
      add_turns(conversations, "assistant", name.string() + ".answer", options_.decode.sampling,
                label + ", answers",
                [this](const Conversation& conversation) { return answer_request(conversation); });
    }
    for (const Conversation& conversation : conversations) take(conversation);
  }

  /// Begins every conversation with its first question, unless that is like an earlier one.
  void add_first_questions(std::vector<Conversation>& conversations) {
    for (Conversation& conversation : conversations) {
      const std::string& question = first_questions_[static_cast<size_t>(conversation.number)];
      if (user_turns_.add(question)) {
        conversation.messages.push_back({"user", question});
      } else {
        conversation.fault = TurnFault::duplicate;
      }
    }
  }

  /// Generates the next turn, the user's or the assistant's, of all open conversations.
  /// `request_of`: the request for a conversation.
  template <class RequestOf>
  void add_turns(std::vector<Conversation>& conversations, const std::string& role, const fs::path& name,
                 const infer::SamplingParams& defaults, const std::string& label,
                 const RequestOf& request_of) {
    std::vector<json> requests;
    std::vector<Conversation*> asked;
    for (Conversation& conversation : conversations) {
      if (!conversation.open()) continue;
      asked.push_back(&conversation);
      requests.push_back(request_of(conversation));
    }
    if (requests.empty()) return;
    const std::vector<json> records = files_.answer(name, requests, defaults, label);
    for (size_t i = 0; i < asked.size(); ++i) add_turn(*asked[i], role, records[i]);
  }

  json user_request(const Conversation& conversation) const {
    UserFrame frame = user_frame(chat_template_, seen_by_user(conversation));
    // A space before a word belongs to the word's token, which the model is to choose.
    while (frame.before.ends_with(' ')) frame.before.pop_back();
    json request = {{"id", id_of(conversation)},
                    {"prompt", tokenizer_.encode(frame.before, {.add_bos = !chat_template_.text_has_bos()})},
                    {"temperature", options_.user_temperature},
                    {"top_p", options_.user_top_p},
                    {"max_tokens", options_.user_max_tokens}};
    // What the template writes after a user's words ends the turn, too: some templates have no end token
    // there.
    if (const std::string after = trimmed(frame.after); !after.empty())
      request["stop"] = json::array({after});
    return request;
  }

  json answer_request(const Conversation& conversation) const {
    return {{"id", id_of(conversation)}, {"messages", json_of(conversation.messages)}};
  }

  /// Adds what was generated to the conversation, or ends it with the turn's fault.
  void add_turn(Conversation& conversation, const std::string& role, const json& record) {
    std::vector<int64_t> tokens;
    const GeneratedTurn turn = turn_of(record, tokenizer_, tokens);
    conversation.fault = fault_of(turn);
    if (infer::is_error_record(record)) {
      conversation.fault = TurnFault::failed;
      if (first_error_.empty()) first_error_ = record["error"].value("message", "");
    }
    if (conversation.open() && role == "user" && !user_turns_.add(turn.text))
      conversation.fault = TurnFault::duplicate;
    if (!conversation.open()) return;
    conversation.messages.push_back({role, turn.text});
    if (role == "assistant") conversation.answer_tokens += static_cast<int64_t>(tokens.size());
  }

  /// Keeps the conversation up to its last answer, if it has one and more are wanted.
  void take(const Conversation& conversation) {
    std::vector<data::Message> messages = conversation.messages;
    if (messages.size() % 2 == 1) messages.pop_back();
    if (messages.empty()) {
      ++counts_.dropped[static_cast<size_t>(conversation.fault)];
      return;
    }
    if (counts_.kept == options_.count) {
      ++counts_.surplus;
      return;
    }
    ++counts_.kept;
    answer_tokens_ += conversation.answer_tokens;
    if (!conversation.open()) ++counts_.shortened[static_cast<size_t>(conversation.fault)];
    json record = {{"id", id_of(conversation)}, {"messages", json_of(messages)}};
    if (!conversation.topic.empty()) record["topic"] = conversation.topic;
    // The first question's hash as a number in [0, 1) decides, so that a question which another run makes,
    // too, is held out in both or in neither.
    const double uniform = double(data::mix_bits(data::fnv1a(messages.front().content)) >> 11) * 0x1p-53;
    const bool held_out = uniform < options_.holdout;
    counts_.held_out += held_out;
    (held_out ? held_out_lines_ : kept_lines_) += record.dump() + "\n";
  }

  std::string id_of(const Conversation& conversation) const {
    return "synthetic-" + std::to_string(conversation.number);
  }

  const SynthesizeOptions& options_;
  const data::Tokenizer& tokenizer_;
  data::ChatTemplate chat_template_;
  fs::path parts_;
  std::vector<std::string> topics_, first_questions_;
  infer::SamplingParams user_sampling_;  // of what a user's request does not say: nothing but the seed is set
  AnswerFiles files_;
  NearDuplicates user_turns_;
  SynthesisCounts counts_;
  int64_t answer_tokens_ = 0;  // of the conversations that are kept
  std::string first_error_;    // of a request that failed; empty: none has
  std::string kept_lines_, held_out_lines_;
};

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

/// {"in a loop": 3, ..}, also of faults that no conversation had.
json json_of(const SynthesisCounts::ByFault& counts) {
  json by_name = json::object();
  for (int fault = 1; fault < turn_faults; ++fault)
    by_name[std::string(name_of(static_cast<TurnFault>(fault)))] = counts[static_cast<size_t>(fault)];
  return by_name;
}

/// "3 in a loop, 1 empty", or "none".
std::string text_of(const SynthesisCounts::ByFault& counts) {
  std::string text;
  for (int fault = 1; fault < turn_faults; ++fault) {
    if (const int64_t count = counts[static_cast<size_t>(fault)]; count > 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " +
              std::string(name_of(static_cast<TurnFault>(fault)));
    }
  }
  return text.empty() ? "none" : text;
}

json report_of(const Synthesis& synthesis, const json& resolved_options) {
  const SynthesisCounts& counts = synthesis.counts();
  return {{"settings", resolved_options},
          {"begun", counts.begun},
          {"kept", counts.kept},
          {"held_out", counts.held_out},
          {"dropped", json_of(counts.dropped)},
          {"shortened", json_of(counts.shortened)},
          {"surplus", counts.surplus},
          {"answer_tokens", synthesis.answer_tokens()},
          {"took", infer::to_json(synthesis.cost())}};
}

void print_counts(const Synthesis& synthesis, const SynthesizeOptions& options) {
  const SynthesisCounts& counts = synthesis.counts();
  std::fprintf(
      stderr,
      "%lld conversations in %s, %lld held out in %s; of %lld begun were dropped: %s; %lld good ones "
      "were more than asked for\n"
      "%lld tokens of answers; shorter than asked, for a later turn: %s\n",
      static_cast<long long>(counts.kept - counts.held_out), options.output.c_str(),
      static_cast<long long>(counts.held_out), held_out_file(options.output).c_str(),
      static_cast<long long>(counts.begun), text_of(counts.dropped).c_str(),
      static_cast<long long>(counts.surplus), static_cast<long long>(synthesis.answer_tokens()),
      text_of(counts.shortened).c_str());
  if (counts.kept < options.count) {
    std::fprintf(stderr, "%lld were asked for: the first questions are used up\n",
                 static_cast<long long>(options.count));
  }
}

}  // namespace

int synthesize(const SynthesizeOptions& options, const json& resolved_options) {
  check(options);
  const fs::path parts = options.output + ".parts", settings_file = parts / "settings.json";
  for (const fs::path& file : {fs::path(options.output), held_out_file(options.output)}) {
    if (fs::exists(file)) {
      throw data::InputError("--output " + options.output + ": expected that " + file.string() +
                             " is not there yet, found it; remove it or choose another name");
    }
  }
  data::check_writable(options.output);
  infer::watch_for_interrupts();
  const data::FolderLock lock(parts);
  json settings = resolved_options;
  for (const char* changes_nothing : {"heads", "draft", "max-batch", "kv-memory", "prefill-chunk", "threads"})
    settings.erase(changes_nothing);
  if (fs::exists(settings_file) && data::read_json(settings_file) != settings) {
    throw data::InputError(parts.string() +
                           ": expected parts of a run with the same options, found those of another; remove "
                           "the folder or choose another --output");
  }
  const infer::LoadedModel model = infer::load_model(options.model);
  Synthesis synthesis(options, model, parts);
  data::write_file_atomically(settings_file, settings.dump(1) + "\n");
  try {
    synthesis.run();
  } catch (const infer::Interrupted&) {
    std::fprintf(stderr, "interrupted: what is complete is safe in %s; the same command continues\n",
                 parts.c_str());
    return infer::exit_interrupted;
  }
  data::write_file_atomically(held_out_file(options.output), synthesis.held_out_lines());
  data::write_file_atomically(options.output + ".run.json",
                              report_of(synthesis, resolved_options).dump(1) + "\n");
  data::write_file_atomically(options.output, synthesis.kept_lines());  // last: it says that all is done
  fs::remove_all(parts);
  print_counts(synthesis, options);
  return synthesis.counts().kept < options.count ? infer::exit_some_failed : infer::exit_done;
}

}  // namespace clover::train
