#include "data/training_input.h"

#include <algorithm>
#include <span>

#include "data/error.h"
#include "data/jinja/texts.h"
#include "data/mapped_file.h"
#include "data/training_record.h"

namespace clover::data {
namespace {

using Spans = std::vector<std::pair<size_t, size_t>>;

constexpr size_t longest_line = size_t{16} << 20;  // bytes; a parsed line takes many times its own size

TrainingSample supervise_spans(Encoding encoding, const Spans& spans) {
  TrainingSample sample;
  sample.ids = std::move(encoding.ids);
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const auto [begin, end] = encoding.spans[i];
    const bool added = i == 0 && begin == end;  // a BOS that is not in the text
    sample.supervised.push_back(!added &&
                                std::any_of(spans.begin(), spans.end(), [begin = begin](const auto& span) {
                                  return span.first <= begin && begin < span.second;
                                }));
  }
  return sample;
}

/// The text of the token an assistant's answer ends with in this format, "<|im_end|>" for ChatML; "" when it
/// has none.
std::string end_text(const ChatTemplate& chat_template) {
  const std::string answer = "Zyzzyva";  // that no template holds
  const RenderedChat chat = chat_template.render({{"user", "q"}, {"assistant", answer}}, false);
  if (chat.assistant_spans.empty()) return "";
  const auto [begin, end] = chat.assistant_spans[0];
  const size_t answer_at = chat.text.find(answer, begin);
  if (answer_at >= end) return "";
  const size_t answer_end = answer_at + answer.size();
  const size_t token_at = std::min(chat.text.find_first_not_of(' ', answer_end), end);
  return chat.text.substr(token_at, end - token_at);
}

/// Where the last answer of a conversation ends, `answer` and the text of its end token.
size_t end_of_answer(const RenderedChat& chat, const std::string& answer, const std::string& end_text) {
  const auto without_spaces = [](std::string_view text) { return jinja::stripped(text, true, true); };
  if (!chat.assistant_spans.empty()) {
    const auto [begin, end] = chat.assistant_spans.back();
    std::string_view said = std::string_view(chat.text).substr(begin, end - begin);
    if (said.ends_with(end_text)) said.remove_suffix(end_text.size());
    if (without_spaces(said) == without_spaces(answer)) return end;
  }
  throw InputError(
      "the conversation: the chat template does not keep earlier answers as they were (thoughts are left "
      "out); "
      "make each turn a line of its own, with what was said before as messages");
}

bool ends_with(const std::vector<int64_t>& ids, const std::vector<int64_t>& tail) {
  return tail.size() <= ids.size() && std::equal(tail.rbegin(), tail.rend(), ids.rbegin());
}

/// Turns records into samples; the tokens are those the decoder would see for the same conversation.
class SampleBuilder {
 public:
  SampleBuilder(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
      : tokenizer_(tokenizer), chat_template_(chat_template) {}

  TrainingSample operator()(const ChatRecord& record) const {
    const RenderedChat chat = chat_template_.render(record.messages, false);
    if (chat.assistant_spans.empty())
      throw InputError("the conversation: expected an assistant's answer, found none");
    return supervise_spans(encode_chat(chat.text), chat.assistant_spans);
  }

  TrainingSample operator()(const CompletionRecord& record) const {
    const std::string text = record.prompt + record.completion + end_text(chat_template_);
    return supervise_spans(encode_plain(text), {{record.prompt.size(), text.size()}});
  }

  TrainingSample operator()(const TextRecord& record) const {
    TrainingSample sample;
    sample.ids = encode_plain(record.text).ids;
    sample.supervised.assign(sample.ids.size(), 1);
    return sample;
  }

  TrainingSample operator()(const TokensRecord& record) const { return {record.ids, record.supervised, ""}; }

  /// prompt, answer 0, what the template puts between, answer 1, ..: the answers are the model's own ids, and
  /// the end token is a label only where the model emitted it.
  TrainingSample operator()(const AnsweredRecord& record) const {
    TrainingSample sample;
    if (!record.is_chat) {
      append(sample, encode_plain(record.prompt).ids, false);
      append(sample, record.answers[0], true);
      return sample;
    }
    std::vector<Message> messages = record.messages;
    append(sample, encode_chat(chat_template_.text(messages, true)).ids, false);
    append(sample, record.answers[0], true);
    const std::string end = record.answers.size() > 1 ? end_text(chat_template_) : "";
    const std::vector<int64_t> end_ids = tokenizer_.encode(end);
    for (size_t turn = 1; turn < record.answers.size(); ++turn) {
      messages.push_back({"assistant", record.texts[turn - 1]});
      messages.push_back({"user", record.later_turns[turn - 1]});
      const RenderedChat chat = chat_template_.render(messages, true);
      size_t boundary = end_of_answer(chat, record.texts[turn - 1], end);
      if (!ends_with(record.answers[turn - 1], end_ids)) boundary -= end.size();
      append_from(sample, encode_chat(chat.text), boundary);
      append(sample, record.answers[turn], true);
    }
    return sample;
  }

 private:
  Encoding encode_chat(const std::string& text) const {
    return tokenizer_.encode_with_spans(text,
                                        {.add_bos = tokenizer_.adds_bos() && !chat_template_.text_has_bos()});
  }

  Encoding encode_plain(const std::string& text) const {
    return tokenizer_.encode_with_spans(text, {.add_bos = tokenizer_.adds_bos()});
  }

  static void append(TrainingSample& sample, std::span<const int64_t> ids, bool supervised) {
    sample.ids.insert(sample.ids.end(), ids.begin(), ids.end());
    sample.supervised.insert(sample.supervised.end(), ids.size(), supervised);
  }

  /// The tokens whose text begins at or behind `boundary`, tokenised in their place in the whole
  /// conversation.
  static void append_from(TrainingSample& sample, const Encoding& encoding, size_t boundary) {
    const auto first = std::find_if(encoding.spans.begin(), encoding.spans.end(),
                                    [&](const auto& span) { return span.first >= boundary; });
    append(sample, std::span(encoding.ids).subspan(first - encoding.spans.begin()), false);
  }

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
};

}  // namespace

TrainingReader::TrainingReader(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               int64_t max_length, int64_t vocab_size)
    : tokenizer_(&tokenizer),
      chat_template_(&chat_template),
      max_length_(max_length),
      vocab_size_(vocab_size) {}

TrainingSample TrainingReader::parse(std::string_view line) const {
  TrainingRecord record = parse_training_record(line);
  TrainingSample sample = std::visit(SampleBuilder(*tokenizer_, *chat_template_), record.content);
  sample.category = std::move(record.category);

  for (const int64_t id : sample.ids) {
    if (id < 0 || id >= vocab_size_) {
      throw InputError("token id " + std::to_string(id) + ": expected 0 <= id < " +
                       std::to_string(vocab_size_) +
                       ", the target's vocabulary; is this data of another model?");
    }
  }
  // The first token of a sample is never predicted, so it is no label.
  const auto labels = [&] {
    return std::any_of(sample.supervised.begin() + std::min<size_t>(1, sample.supervised.size()),
                       sample.supervised.end(), [](uint8_t supervised) { return supervised != 0; });
  };
  if (!labels()) throw InputError("the record: expected at least one token to learn from, found none");
  if (static_cast<int64_t>(sample.ids.size()) > max_length_) {
    const size_t whole = sample.ids.size();
    sample.ids.resize(max_length_);
    sample.supervised.resize(max_length_);
    if (!labels()) {
      throw InputError("the record has " + std::to_string(whole) + " tokens, and the maximum length of " +
                       std::to_string(max_length_) + " cuts away all that are to be learned from");
    }
  }
  return sample;
}

void TrainingReader::read(const std::filesystem::path& file,
                          const std::function<void(TrainingSample&&)>& on_sample,
                          const std::function<void(const BadRecord&)>& on_bad) const {
  const MappedFile mapped(file);
  std::string_view rest = mapped.view();
  if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t length = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    TrainingSample sample;
    try {
      if (line.size() > longest_line) {
        throw InputError("the record: expected a line of at most " + std::to_string(longest_line) +
                         " bytes, found " + std::to_string(line.size()));
      }
      sample = parse(line);
    } catch (const InputError& error) {
      on_bad({file.string(), number, error.what()});
      continue;
    }
    on_sample(std::move(sample));
  }
}

}  // namespace clover::data
