#include "train/synthesize/conversations.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "data/files/error.h"
#include "data/files/hash.h"
#include "data/files/json_fields.h"
#include "infer/program/progress.h"
#include "train/synthesize/user_frame.h"

namespace clover::train {

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

namespace {

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

}  // namespace

Conversations::Conversations(const SynthesizeOptions& options, const Openings& openings,
                             const infer::LoadedModel& model, fs::path parts)
    : options_(options),
      topics_(openings.topics),
      first_questions_(openings.first_questions),
      tokenizer_(model.prompt_encoder->tokenizer()),
      chat_template_(data::ChatTemplate::load(options.model.target, options.model.chat_template)),
      parts_(std::move(parts)),
      files_(model, options.decode, options.model) {
  user_sampling_.seed = options.decode.sampling.seed;
}

void Conversations::run() {
  for (int64_t round = 1; counts_.kept < options_.count; ++round) {
    const int64_t size = size_of_next_round();
    if (size <= 0) break;
    run_round(round, size);
    print_progress();
  }
  if (counts_.kept == 0) throw data::InputError(why_none_is_kept());
  split();
}

/// How many conversations to begin next; 0 or less: no more.  The counts alone decide, so that a run that
/// continues has the same rounds.
int64_t Conversations::size_of_next_round() const {
  constexpr int64_t min_round = 16, max_first_round = 64, max_round = 4096, max_begun_per_kept = 20;
  const double missing = double(options_.count - counts_.kept);
  const double rate = counts_.begun == 0 ? 0.8 : std::max(0.05, double(counts_.kept) / double(counts_.begun));
  const double wanted = std::clamp(std::ceil(missing / rate), double(min_round), double(max_round));
  int64_t size = static_cast<int64_t>(wanted);
  if (counts_.begun == 0) size = std::min(size, max_first_round);
  const int64_t limit = first_questions_.empty() ? max_begun_per_kept * (counts_.kept + min_round) + 1
                                                 : static_cast<int64_t>(first_questions_.size());
  return std::min(size, limit - counts_.begun);
}

/// Says how far it is.  The time left is foretold from what answering has taken, in earlier processes, too.
void Conversations::print_progress() const {
  std::string text = "kept " + std::to_string(counts_.kept) + " of " + std::to_string(options_.count) + ", " +
                     std::to_string(counts_.begun) + " begun";
  const int64_t missing = options_.count - counts_.kept;
  if (counts_.kept > 0 && missing > 0) {
    const double seconds = files_.cost().seconds / double(counts_.kept) * double(missing);
    text += ", about " + infer::clock_text(seconds) + " left";
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::string Conversations::why_none_is_kept() const {
  std::string text = "None of " + std::to_string(counts_.begun) + " conversations was good (" +
                     summary_of(counts_.dropped) + ")";
  if (!first_error_.empty()) text += "; the first request that failed says: " + first_error_;
  text += first_questions_.empty() ? "; try another --user-temperature, --user-max-tokens or --max-tokens"
                                   : "; try other questions, another --temperature or --max-tokens";
  if (topics_.empty() && first_questions_.empty()) text += ", or give --topics or --first-questions";
  return text + ", and remove " + parts_.string() + " first";
}

void Conversations::run_round(int64_t round, int64_t size) {
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
void Conversations::add_first_questions(std::vector<Conversation>& conversations) {
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
void Conversations::add_turns(std::vector<Conversation>& conversations, const std::string& role,
                              const fs::path& name, const infer::SamplingParams& defaults,
                              const std::string& label, const RequestOf& request_of) {
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

json Conversations::user_request(const Conversation& conversation) const {
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
  if (const std::string after = trim_blanks(frame.after); !after.empty())
    request["stop"] = json::array({after});
  return request;
}

json Conversations::answer_request(const Conversation& conversation) const {
  return {{"id", id_of(conversation)}, {"messages", json_of(conversation.messages)}};
}

/// Adds what was generated to the conversation, or ends it with the turn's fault.
void Conversations::add_turn(Conversation& conversation, const std::string& role, const json& record) {
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
void Conversations::take(const Conversation& conversation) {
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
  // The number is a hash of the first question, so that a question which another run makes, too, is held
  // out in both or in neither.
  const double number = double(data::mix_bits(data::fnv1a(messages.front().content)) >> 11) * 0x1p-53;
  kept_.push_back({data::to_json_line(record) + "\n", number});
}

/// Holds out the conversations with small numbers: the share that is asked for, and of two or more at least
/// one.
void Conversations::split() {
  double limit = options_.holdout;
  if (limit > 0 && kept_.size() > 1) {
    const auto first = std::min_element(kept_.begin(), kept_.end(),
                                        [](const Kept& a, const Kept& b) { return a.number < b.number; });
    limit = std::max(limit, std::nextafter(first->number, 1.0));
  }
  for (const Kept& conversation : kept_) {
    const bool held_out = conversation.number < limit;
    counts_.held_out += held_out;
    (held_out ? held_out_lines_ : kept_lines_) += conversation.line;
  }
}

std::string Conversations::id_of(const Conversation& conversation) const {
  return "synthetic-" + std::to_string(conversation.number);
}

}  // namespace clover::train
